"""Method plugins of lamps: one folder per problem family, one file per method."""
