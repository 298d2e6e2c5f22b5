"""Language models: clients, prices, the ledger of what they cost, recordings of exchanges."""
