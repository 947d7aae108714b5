"""Where prompts come from, one kind a file: `rows(where, folder)` yields raw rows, `_at` saying where each stands."""

# SPDX-License-Identifier: Apache-2.0
