"""Salt's own loaders, with the options of a minion and a master that do not run."""

import pytest
from saltfactories.utils.functional import Loaders


@pytest.fixture(scope="session")
def minion_opts(salt_factories, sidle_options):
    factory = salt_factories.salt_minion_daemon("functional-minion", overrides={"file_client": "local", "sidle": sidle_options})
    return factory.config.copy()


@pytest.fixture(scope="session")
def master_opts(salt_factories, sidle_options):
    return salt_factories.salt_master_daemon("functional-master", overrides={"sidle": sidle_options}).config.copy()


@pytest.fixture(scope="session")
def loaders(minion_opts):
    return Loaders(minion_opts)
