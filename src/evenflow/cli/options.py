"""Parameters that several commands share."""

from typing import Annotated

from cyclopts import Group, Parameter

from evenflow.engine.config import EngineConfig

EngineOptions = Annotated[EngineConfig, Parameter(name="*", group=Group("Model and engine", sort_key=2))]
"""A flag for each setting, in a box of their own."""

Switch = Annotated[bool, Parameter(negative="", show_default=False)]
"""Off unless it is given."""
