"""The database's schema over time. Every table change is a revision here, from the first release on."""
