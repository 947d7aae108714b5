"""Rows of a Parquet file: one conversation a row; `turns` is a list of texts, `messages` a list of role and content.

where: {file: prompts.parquet}                    # beside the YAML
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow
import pyarrow.parquet

from speedbench import catalog
from speedbench.errors import UnknownName, UserError, first_line
from speedbench.types import Settings

KEYS = ("file",)
ROWS = 256
"""Rows in memory at a time, as the file has them."""


def rows(where: Settings, folder: str) -> Iterator[Mapping[str, Any]]:
    """The rows in the file's order, as they stand, each with `_at`: file and row."""
    for key in where:
        if key not in KEYS:
            raise UnknownName("key of 'where' for a parquet source", str(key), KEYS)
    file = where.get("file")
    if not isinstance(file, str) or not file:
        raise UserError(f"where.file: should name a Parquet file (got {file!r})")
    try:
        with catalog.located(folder, file).open("rb") as opened:
            number = 0
            for batch in pyarrow.parquet.ParquetFile(opened).iter_batches(batch_size=ROWS):
                for row in batch.to_pylist():
                    number += 1
                    yield {key: _plain(value) for key, value in row.items()} | {"_at": f"{file}, row {number}"}
    except (FileNotFoundError, KeyError):
        raise UserError(f"no file '{file}'") from None
    except (OSError, pyarrow.ArrowException) as error:
        raise UserError(f"{file} does not read as Parquet: {first_line(error)}") from None


def _plain(value: Any) -> Any:
    """A list of structs has every key in every struct; those that say nothing go."""
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return {key: each for key, each in value.items() if each is not None} if isinstance(value, dict) else value
