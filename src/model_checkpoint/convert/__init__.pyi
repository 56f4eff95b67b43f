"""The front door of this room: every public name and the module that defines it. The one list."""

from .adopting import Adopted as Adopted
from .adopting import AdoptReport as AdoptReport
from .adopting import adopt as adopt
from .converting import Converted as Converted
from .converting import convert as convert
from .errors import SourceUnreadable as SourceUnreadable
from .sources.dcp_folder import read_dcp as read_dcp
