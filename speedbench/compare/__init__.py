"""Runs compared with runs: what is like for like, by how much they differ, and whether that is a regression."""

# SPDX-License-Identifier: Apache-2.0
