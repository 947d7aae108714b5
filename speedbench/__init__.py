"""speedbench: acceptance length and end-to-end speedup of speculative decoding, measured and explained."""

# SPDX-License-Identifier: Apache-2.0

__version__ = "0.1.0"
