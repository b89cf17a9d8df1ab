/* Calls that DPDK has replaced since 22.11: the sources use the newest, and this has them for the versions
 * before. Each says from which version on it is not needed. */
#ifndef DP_DPDK_COMPAT_H
#define DP_DPDK_COMPAT_H

#include <rte_telemetry.h>
#include <rte_version.h>

#if RTE_VERSION < RTE_VERSION_NUM(23, 3, 0, 0)
#define rte_tel_data_add_dict_uint rte_tel_data_add_dict_u64 /* 23.03 */
#endif

#endif
