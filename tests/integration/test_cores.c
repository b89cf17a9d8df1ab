/* One core and three give the same values; a checkpoint of one restores onto the other. */
