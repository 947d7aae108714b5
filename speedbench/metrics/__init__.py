"""The numbers: one family a file, each a tuple `METRICS` of pure functions of what was measured."""

# SPDX-License-Identifier: Apache-2.0
