/* Garbage, cut and repeated datagrams: counted, never answered, never fatal. */
