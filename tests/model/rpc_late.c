/* The same as rpc_work.c for an agent that was destroyed: work runs on the threads that submit it, one at
 * a time, under mr_rpc.late.
 */
#define IS_OVER true
#include "rpc_work.c" // NOLINT(bugprone-suspicious-include)
