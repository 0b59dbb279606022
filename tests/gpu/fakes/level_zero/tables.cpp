// SPDX-License-Identifier: Apache-2.0
// The tables that the loader requests from a driver. It opens no driver that lacks one of these functions.
#include "level_zero/objects.hpp"

#include <level_zero/ze_ddi.h>
#include <level_zero/zes_api.h>
#include <level_zero/zes_ddi.h>
#include <level_zero/zet_api.h>
#include <level_zero/zet_ddi.h>

#include <cstring>

namespace {

// A loader that is newer than these headers takes the older tables, too.
template <class Table, class Fill>
ze_result_t give(ze_api_version_t version, Table* table, Fill fill) {
  if (table == nullptr) return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
  if (ZE_MAJOR_VERSION(version) != 1) return ZE_RESULT_ERROR_UNSUPPORTED_VERSION;
  std::memset(table, 0, sizeof *table);
  fill(*table);
  return ZE_RESULT_SUCCESS;
}
constexpr auto nothing = [](auto&) {};

}  // namespace

namespace fakes = tutti::fakes;

TUTTI_EXPORT ze_result_t zeGetGlobalProcAddrTable(ze_api_version_t v, ze_global_dditable_t* t) {
  return give(v, t, [](auto& to) { to.pfnInit = fakes::init; });
}
TUTTI_EXPORT ze_result_t zeGetDriverProcAddrTable(ze_api_version_t v, ze_driver_dditable_t* t) {
  return give(v, t, [](auto& to) {
    to.pfnGet = fakes::driver_get;
    to.pfnGetApiVersion = fakes::driver_api_version;
    to.pfnGetProperties = fakes::driver_properties;
    to.pfnGetIpcProperties = fakes::driver_ipc_properties;
    to.pfnGetExtensionProperties = fakes::driver_extensions;
    to.pfnGetExtensionFunctionAddress = fakes::driver_extension_address;
  });
}
TUTTI_EXPORT ze_result_t zeGetDeviceProcAddrTable(ze_api_version_t v, ze_device_dditable_t* t) {
  return give(v, t, [](auto& to) {
    to.pfnGet = fakes::device_get;
    to.pfnGetSubDevices = fakes::device_subdevices;
    to.pfnGetProperties = fakes::device_properties;
    to.pfnGetCommandQueueGroupProperties = fakes::device_queue_groups;
    to.pfnCanAccessPeer = fakes::device_access_peer;
    to.pfnGetStatus = fakes::device_status;
  });
}
TUTTI_EXPORT ze_result_t zeGetContextProcAddrTable(ze_api_version_t v, ze_context_dditable_t* t) {
  return give(v, t, [](auto& to) {
    to.pfnCreate = fakes::context_create;
    to.pfnDestroy = fakes::context_destroy;
    to.pfnGetStatus = fakes::context_status;
  });
}
TUTTI_EXPORT ze_result_t zeGetCommandListProcAddrTable(ze_api_version_t v, ze_command_list_dditable_t* t) {
  return give(v, t, [](auto& to) {
    to.pfnCreateImmediate = fakes::list_create;
    to.pfnDestroy = fakes::list_destroy;
    to.pfnAppendBarrier = fakes::append_barrier;
    to.pfnAppendMemoryCopy = fakes::append_copy;
    to.pfnAppendMemoryFill = fakes::append_fill;
    to.pfnAppendSignalEvent = fakes::append_signal;
    to.pfnAppendWaitOnEvents = fakes::append_wait;
    to.pfnAppendLaunchKernel = fakes::append_launch;
  });
}
TUTTI_EXPORT ze_result_t zeGetEventPoolProcAddrTable(ze_api_version_t v, ze_event_pool_dditable_t* t) {
  return give(v, t, [](auto& to) {
    to.pfnCreate = fakes::pool_create;
    to.pfnDestroy = fakes::pool_destroy;
  });
}
TUTTI_EXPORT ze_result_t zeGetEventProcAddrTable(ze_api_version_t v, ze_event_dditable_t* t) {
  return give(v, t, [](auto& to) {
    to.pfnCreate = fakes::event_create;
    to.pfnDestroy = fakes::event_destroy;
    to.pfnHostSignal = fakes::event_signal;
    to.pfnHostReset = fakes::event_reset;
    to.pfnQueryStatus = fakes::event_query;
    to.pfnHostSynchronize = fakes::event_synchronize;
  });
}
TUTTI_EXPORT ze_result_t zeGetMemProcAddrTable(ze_api_version_t v, ze_mem_dditable_t* t) {
  return give(v, t, [](auto& to) {
    to.pfnAllocDevice = fakes::alloc_device;
    to.pfnAllocHost = fakes::alloc_host;
    to.pfnAllocShared = fakes::alloc_shared;
    to.pfnFree = fakes::free_memory;
    to.pfnGetAllocProperties = fakes::memory_properties;
    to.pfnGetAddressRange = fakes::address_range;
    to.pfnGetIpcHandle = fakes::ipc_name;
    to.pfnOpenIpcHandle = fakes::ipc_open;
    to.pfnCloseIpcHandle = fakes::ipc_close;
  });
}
TUTTI_EXPORT ze_result_t zeGetModuleProcAddrTable(ze_api_version_t v, ze_module_dditable_t* t) {
  return give(v, t, [](auto& to) {
    to.pfnCreate = fakes::module_create;
    to.pfnDestroy = fakes::module_destroy;
  });
}
TUTTI_EXPORT ze_result_t zeGetModuleBuildLogProcAddrTable(ze_api_version_t v,
                                                          ze_module_build_log_dditable_t* t) {
  return give(v, t, [](auto& to) {
    to.pfnGetString = fakes::build_log_text;
    to.pfnDestroy = fakes::build_log_destroy;
  });
}
TUTTI_EXPORT ze_result_t zeGetKernelProcAddrTable(ze_api_version_t v, ze_kernel_dditable_t* t) {
  return give(v, t, [](auto& to) {
    to.pfnCreate = fakes::kernel_create;
    to.pfnDestroy = fakes::kernel_destroy;
    to.pfnSetGroupSize = fakes::kernel_group_size;
    to.pfnSetArgumentValue = fakes::kernel_argument;
    to.pfnSetIndirectAccess = fakes::kernel_indirect_access;
  });
}

// For missing functions the loader returns ZE_RESULT_ERROR_UNSUPPORTED_FEATURE.
#define TUTTI_EMPTY(function, table) \
  TUTTI_EXPORT ze_result_t function(ze_api_version_t v, table* t) { return give(v, t, nothing); }
TUTTI_EMPTY(zeGetCommandQueueProcAddrTable, ze_command_queue_dditable_t)
TUTTI_EMPTY(zeGetFenceProcAddrTable, ze_fence_dditable_t)
TUTTI_EMPTY(zeGetImageProcAddrTable, ze_image_dditable_t)
TUTTI_EMPTY(zeGetPhysicalMemProcAddrTable, ze_physical_mem_dditable_t)
TUTTI_EMPTY(zeGetSamplerProcAddrTable, ze_sampler_dditable_t)
TUTTI_EMPTY(zeGetVirtualMemProcAddrTable, ze_virtual_mem_dditable_t)

TUTTI_EMPTY(zetGetDeviceProcAddrTable, zet_device_dditable_t)
TUTTI_EMPTY(zetGetContextProcAddrTable, zet_context_dditable_t)
TUTTI_EMPTY(zetGetCommandListProcAddrTable, zet_command_list_dditable_t)
TUTTI_EMPTY(zetGetKernelProcAddrTable, zet_kernel_dditable_t)
TUTTI_EMPTY(zetGetModuleProcAddrTable, zet_module_dditable_t)
TUTTI_EMPTY(zetGetDebugProcAddrTable, zet_debug_dditable_t)
TUTTI_EMPTY(zetGetMetricProcAddrTable, zet_metric_dditable_t)
TUTTI_EMPTY(zetGetMetricGroupProcAddrTable, zet_metric_group_dditable_t)
TUTTI_EMPTY(zetGetMetricQueryProcAddrTable, zet_metric_query_dditable_t)
TUTTI_EMPTY(zetGetMetricQueryPoolProcAddrTable, zet_metric_query_pool_dditable_t)
TUTTI_EMPTY(zetGetMetricStreamerProcAddrTable, zet_metric_streamer_dditable_t)
TUTTI_EMPTY(zetGetTracerExpProcAddrTable, zet_tracer_exp_dditable_t)

TUTTI_EMPTY(zesGetDeviceProcAddrTable, zes_device_dditable_t)
TUTTI_EMPTY(zesGetDriverProcAddrTable, zes_driver_dditable_t)
TUTTI_EMPTY(zesGetDiagnosticsProcAddrTable, zes_diagnostics_dditable_t)
TUTTI_EMPTY(zesGetEngineProcAddrTable, zes_engine_dditable_t)
TUTTI_EMPTY(zesGetFabricPortProcAddrTable, zes_fabric_port_dditable_t)
TUTTI_EMPTY(zesGetFanProcAddrTable, zes_fan_dditable_t)
TUTTI_EMPTY(zesGetFirmwareProcAddrTable, zes_firmware_dditable_t)
TUTTI_EMPTY(zesGetFrequencyProcAddrTable, zes_frequency_dditable_t)
TUTTI_EMPTY(zesGetLedProcAddrTable, zes_led_dditable_t)
TUTTI_EMPTY(zesGetMemoryProcAddrTable, zes_memory_dditable_t)
TUTTI_EMPTY(zesGetPerformanceFactorProcAddrTable, zes_performance_factor_dditable_t)
TUTTI_EMPTY(zesGetPowerProcAddrTable, zes_power_dditable_t)
TUTTI_EMPTY(zesGetPsuProcAddrTable, zes_psu_dditable_t)
TUTTI_EMPTY(zesGetRasProcAddrTable, zes_ras_dditable_t)
TUTTI_EMPTY(zesGetSchedulerProcAddrTable, zes_scheduler_dditable_t)
TUTTI_EMPTY(zesGetStandbyProcAddrTable, zes_standby_dditable_t)
TUTTI_EMPTY(zesGetTemperatureProcAddrTable, zes_temperature_dditable_t)
