"""Pages to look at: a run's numbers in words, charts and tables, in one HTML file that needs no network."""

# SPDX-License-Identifier: Apache-2.0
