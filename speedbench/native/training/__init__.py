"""Training drafters for a target: its own answers as a corpus, then one learner for each mechanism."""

# SPDX-License-Identifier: Apache-2.0
