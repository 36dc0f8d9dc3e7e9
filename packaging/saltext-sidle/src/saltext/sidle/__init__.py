"""Salt extension for sidle: side-by-side, verified, reversible upgrades of the agents that run a fleet."""
