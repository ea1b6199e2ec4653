"""A table of events as a Parquet file. The only module that needs pyarrow (the extra `parquet`)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

_TYPES = {float: pa.float64(), int: pa.int64(), bool: pa.bool_(), str: pa.string()}
_ROWS_AT_ONCE = 65_536


class ParquetTable:
    """A row group for each 65,536 rows; so many are in memory."""

    def __init__(self, path: Path, columns: Mapping[str, type]) -> None:
        self._schema = pa.schema([(name, _TYPES[column_type]) for name, column_type in columns.items()])
        self._writer = pq.ParquetWriter(path, self._schema, compression="zstd")
        self._rows: list[dict[str, Any]] = []  # Any: cells of every column's type; the schema checks them

    def add(self, row: Mapping[str, Any], /) -> None:
        self._rows.append(dict(row))
        if len(self._rows) == _ROWS_AT_ONCE:
            self._write()

    def _write(self) -> None:
        self._writer.write_table(pa.Table.from_pylist(self._rows, schema=self._schema))
        self._rows.clear()

    def close(self) -> None:
        try:
            self._write()
        finally:
            self._writer.close()
