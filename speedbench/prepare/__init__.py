"""Makes prompt sets on the user's machine: rows from a hub at a pinned revision, their texts from where they belong.

`sets.py` is the table of sets; `speed_bench.py` resolves NVIDIA's placeholders; `preparing.py` does it, so that it can
be stopped and gone on with. Only `origins.py` uses the network.
"""

# SPDX-License-Identifier: Apache-2.0
