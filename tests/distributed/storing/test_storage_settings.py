"""Settings of a storage: what is taken, and what is refused before anything is made."""

import pytest

from model_checkpoint.distributed import FolderStorage, StorageFactory, StorageOptions
from model_checkpoint.errors import OptionInvalid


@pytest.mark.parametrize("base", ["", " ", None, 3, b"bytes"])
@pytest.mark.parametrize("provider", ["local", "memory"])
def test_a_place_is_a_name(provider, base):
    options = StorageOptions(provider=provider, connection_settings={"basePath": base})

    with pytest.raises(OptionInvalid, match=f"connection_settings of a {provider} storage lack 'basePath'"):
        StorageFactory.create(options)


def test_without_options_checkpoints_lie_in_the_folder_of_that_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    made = StorageFactory.create()

    assert isinstance(made, FolderStorage)
    assert made.url == str(tmp_path / "checkpoints")
