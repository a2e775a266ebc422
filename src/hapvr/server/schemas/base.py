"""What the shapes of requests and answers have in common: limits, errors, and which videos are meant."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from hapvr.server.problems import Kind

VIDEO_ID, QUERY_ID, JOB_ID = "3f2a91c07be4", "q1f0c8a94be1d2e3f40516273", "j9d1e0c7b6a5f4e3d"


class Strict(BaseModel):
    """A request or an answer: keys that are not named here are refused."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


def example(value: Any) -> ConfigDict:
    """The settings of a model that has an example in the OpenAPI document."""
    return ConfigDict(json_schema_extra={"examples": [value]})


Id = Field(min_length=1, max_length=64)
IgnoreShared = Field(True, description="Footage that many videos of the library share makes no match.")


class FilterOptions(Strict):
    """Which videos are meant; without any of these all are."""

    root: str | None = Field(None, min_length=1, max_length=64, description="Only files in this root: its id.")
    folder: str = Field("", max_length=1000, description="Only files in this folder of the root.")
    min_size: int | None = Field(None, ge=0, le=10**15, description="Only files of at least this many bytes.")
    max_size: int | None = Field(None, ge=0, le=10**15, description="Only files of at most this many bytes.")
    min_seconds: float | None = Field(None, ge=0, le=1e7, description="Only videos of at least this length.")
    max_seconds: float | None = Field(None, ge=0, le=1e7, description="Only videos of at most this length.")
    after: datetime | None = Field(None, description="Only files that were last changed at this time or later.")
    before: datetime | None = Field(None, description="Only files that were last changed before this time.")


class Pair(Strict):
    """Two videos of the library."""

    model_config = example({"a": VIDEO_ID, "b": "77aa0c1d2e3f"})
    a: str = Id
    b: str = Id


class ErrorDetail(Strict):
    """What went wrong."""

    type: Kind
    message: str = Field(description="A sentence.")
    hint: str | None = Field(description="What to do.")


class Error(Strict):
    """The body of every answer that is no success."""

    model_config = example({"error": {"type": "NotFound", "message": f"There is no video '{VIDEO_ID}'.", "hint": None}})
    error: ErrorDetail
