/* Marks what the library offers: all else that it is made of stays hidden in it. */
#ifndef MR_API
#define MR_API __attribute__((visibility("default")))
#endif
