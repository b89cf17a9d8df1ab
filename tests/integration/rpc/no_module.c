/* A shared object that is no module. */
int no_module_has_this_only(void);

int no_module_has_this_only(void)
{
    return 1;
}
