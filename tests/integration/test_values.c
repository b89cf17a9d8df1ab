/* What a real node computes, against a model of tables and optimizers written here from the definitions alone. */
