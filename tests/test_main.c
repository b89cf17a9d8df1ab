/* main() of test programs that have none of their own: they take no arguments. */
#include "tests/test.h"

int main(void)
{
    return tests_run(NULL, NULL);
}
