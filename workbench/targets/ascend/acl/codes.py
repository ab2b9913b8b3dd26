"""What the return codes of pyACL mean, and who can act on each.

The names are those of the 8.5.0 headers without ACL_ERROR_, ACL_ERROR_RT_ or ACL_ERROR_GE_ (runtime v8.5.0
include/external/acl/acl_base_rt.h, acl_base_mdl.h, error_codes/rt_error_codes.h, ge_error_codes.h); the meanings are
those of the vendor's page aclError. Which codes call for which reaction is [inferred] (pyacl.md §2.6, retry policy);
that an exception in a kernel is answered like a time-out is our addition to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Kind = Literal[
    "success",
    "caller",
    "model",
    "memory",
    "busy",
    "retry_process",
    "device_lost",
    "environment",
    "internal",
]
"""Who can act: 'caller' the calling program or what it was fed; 'model' whoever compiled this model; 'memory' and
'busy' whoever else uses the device, later; 'retry_process' nobody inside this process: its runtime has to be built
anew; 'device_lost' and 'environment' the machine's administrator; 'internal' the vendor."""

SUCCESS = 0
INVALID_PARAM = 100000
REPEAT_INITIALIZE = 100002


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeMeaning:
    """One return code.

    Attributes:
        remedy: what to do about it, a sentence or two.
    """

    code: int
    name: str
    meaning: str
    remedy: str
    kind: Kind


def describe(code: int) -> CodeMeaning:
    """The meaning of a code; one that is in no table is told by its first digit, as the vendor groups them."""
    known = MEANINGS.get(code)
    if known is not None:
        return known
    kind = _KIND_BY_DIGIT.get(code // 100000, "internal")
    return CodeMeaning(
        code=code,
        name="UNKNOWN",
        meaning="a code that is not in CANN 8.5.0",
        remedy=f"Look it up in the manual of the CANN version installed. {_REMEDIES[kind]}",
        kind=kind,
    )


_KIND_BY_DIGIT: Mapping[int, Kind] = {1: "caller", 2: "environment", 3: "caller", 5: "internal"}
"""100000 to 199999 caller, 2xxxxx environment or resources, 3xxxxx business, 5xxxxx internal (vendor's rules 1-4)."""

_REMEDIES: Mapping[Kind, str] = {
    "success": "",
    "caller": "The workbench called wrongly or was fed wrongly: report it with this message.",
    "model": "Compile the model again with the CANN and for the chip that run it.",
    "memory": "End other processes on the device (`npu-smi info`), or use smaller batches and fewer bins.",
    "busy": "End other processes on the device (`npu-smi info`) and run the same command again.",
    "retry_process": "The runtime of this process has to be built anew before the device is used again.",
    "device_lost": "Do not use this device: look at `npu-smi info -t health -i <id> -c 0` and reset it.",
    "environment": "Run `workbench doctor`: it names what is missing on this machine.",
    "internal": "Run it again; when it stays, send CANN's log (~/ascend/log) to the vendor.",
}

_REMEDY_OF: Mapping[int, str] = {
    100039: "Remove the folder `stub` of the toolkit from LD_LIBRARY_PATH.",
    107001: "Devices count from 0 to acl.rt.get_device_count() - 1; ASCEND_RT_VISIBLE_DEVICES renumbers them.",
    107002: "Set the context in each thread that calls: acl.rt.set_context.",
    148049: "Source CANN's set_env.sh, which sets ASCEND_OPP_PATH.",
    145006: "The file is truncated or no OM: compile or copy it again.",
    207003: "Keep the operator in float32 (--keep_dtype), or look for it with the overflow check.",
    207004: "Look at `npu-smi info`; in a container, mount /dev/davinciN and its companions.",
    207006: "Add this user to the driver's group (HwHiAiUser), or give the container the device files.",
    207016: "Keep the operator in float32 (--keep_dtype), or look for it with the overflow check.",
    207017: "Keep the operator in float32 (--keep_dtype), or look for it with the overflow check.",
    207019: "Update the driver to 25.0.RC1 or newer.",
    300000: "Free or change the disk.",
    500002: "The reason is the graph engine's own; compile the model again with the CANN and for the chip that run it.",
}

_ROWS: tuple[tuple[int, str, Kind, str], ...] = (
    # AscendCL
    (0, "SUCCESS", "success", "done"),
    (100000, "INVALID_PARAM", "caller", "an argument is invalid, or null"),
    (100001, "UNINITIALIZE", "caller", "acl.init was not called before"),
    (100002, "REPEAT_INITIALIZE", "caller", "acl.init was called before in this process"),
    (100003, "INVALID_FILE", "caller", "a file is missing or cannot be read"),
    (100004, "WRITE_FILE", "environment", "a file cannot be written"),
    (100005, "INVALID_FILE_SIZE", "caller", "a file has an impossible size"),
    (100006, "PARSE_FILE", "caller", "a file cannot be parsed"),
    (100007, "FILE_MISSING_ATTR", "caller", "a file lacks an entry"),
    (100008, "FILE_ATTR_INVALID", "caller", "an entry of a file is invalid"),
    (100009, "INVALID_DUMP_CONFIG", "caller", "the dump section of acl.json is invalid"),
    (100010, "INVALID_PROFILING_CONFIG", "caller", "the profiling section of acl.json is invalid"),
    (100011, "INVALID_MODEL_ID", "caller", "no model has this id"),
    (100012, "DESERIALIZE_MODEL", "model", "the model file cannot be deserialized"),
    (100013, "PARSE_MODEL", "model", "the model file cannot be parsed"),
    (100014, "READ_MODEL_FAILURE", "model", "the model file cannot be read"),
    (100015, "MODEL_SIZE_INVALID", "model", "the model file has an impossible size"),
    (100016, "MODEL_MISSING_ATTR", "model", "the model file lacks an attribute"),
    (100017, "MODEL_INPUT_NOT_MATCH", "caller", "the inputs do not fit the model"),
    (100018, "MODEL_OUTPUT_NOT_MATCH", "caller", "the outputs do not fit the model"),
    (100019, "MODEL_NOT_DYNAMIC", "caller", "the model has no dynamic shape"),
    (100020, "OP_TYPE_NOT_MATCH", "caller", "the type of a single operator does not fit"),
    (100021, "OP_INPUT_NOT_MATCH", "caller", "the inputs of a single operator do not fit"),
    (100022, "OP_OUTPUT_NOT_MATCH", "caller", "the outputs of a single operator do not fit"),
    (100023, "OP_ATTR_NOT_MATCH", "caller", "the attributes of a single operator do not fit"),
    (100024, "OP_NOT_FOUND", "caller", "a single operator was not found"),
    (100025, "OP_LOAD_FAILED", "caller", "a single operator cannot be loaded"),
    (100026, "UNSUPPORTED_DATA_TYPE", "caller", "the data type is not supported"),
    (100027, "FORMAT_NOT_MATCH", "caller", "the tensor format does not fit"),
    (100028, "BIN_SELECTOR_NOT_REGISTERED", "caller", "no kernel selector is registered"),
    (100029, "KERNEL_NOT_FOUND", "caller", "the kernel is not registered"),
    (100030, "BIN_SELECTOR_ALREADY_REGISTERED", "caller", "the kernel selector is registered already"),
    (100031, "KERNEL_ALREADY_REGISTERED", "caller", "the kernel is registered already"),
    (100032, "INVALID_QUEUE_ID", "caller", "no queue has this id"),
    (100033, "REPEAT_SUBSCRIBE", "caller", "the stream's callbacks are subscribed already"),
    (100034, "STREAM_NOT_SUBSCRIBE", "caller", "the stream's callbacks are not subscribed"),
    (100035, "THREAD_NOT_SUBSCRIBE", "caller", "the thread has no subscription"),
    (100036, "WAIT_CALLBACK_TIMEOUT", "caller", "no callback came in time"),
    (100037, "REPEAT_FINALIZE", "caller", "acl.finalize was called before"),
    (100038, "NOT_STATIC_AIPP", "caller", "the model has no static image preprocessing"),
    (100039, "COMPILING_STUB_MODE", "environment", "the libraries found first are CANN's compile-time stubs"),
    (100040, "GROUP_NOT_SET", "caller", "no group is set"),
    (100041, "GROUP_NOT_CREATE", "caller", "no such group"),
    (100042, "PROF_ALREADY_RUN", "caller", "profiling is running already"),
    (100043, "PROF_NOT_RUN", "caller", "profiling is not initialized"),
    (100044, "DUMP_ALREADY_RUN", "caller", "dump is configured already"),
    (100045, "DUMP_NOT_RUN", "caller", "dump is not initialized"),
    (148046, "PROF_REPEAT_SUBSCRIBE", "caller", "the model is subscribed for profiling already"),
    (148047, "PROF_API_CONFLICT", "caller", "two ways of profiling exclude each other"),
    (148048, "INVALID_MAX_OPQUEUE_NUM_CONFIG", "caller", "max_opqueue_num of acl.json is invalid"),
    (148049, "INVALID_OPP_PATH", "environment", "ASCEND_OPP_PATH is not set, or leads nowhere"),
    (148050, "OP_UNSUPPORTED_DYNAMIC", "caller", "a single operator has no dynamic shape"),
    (148051, "RELATIVE_RESOURCE_NOT_CLEARED", "caller", "something that depends on it still exists"),
    (148052, "UNSUPPORTED_JPEG", "caller", "the picture's coding is not supported"),
    (148053, "INVALID_BUNDLE_MODEL_ID", "caller", "no bundle of models has this id"),
    (200000, "BAD_ALLOC", "memory", "host memory cannot be allocated"),
    (200001, "API_NOT_SUPPORT", "caller", "the call does not serve this chip or model"),
    (200002, "INVALID_DEVICE", "environment", "no device has this id"),
    (200003, "MEMORY_ADDRESS_UNALIGNED", "caller", "a memory address is not aligned"),
    (200004, "RESOURCE_NOT_MATCH", "caller", "stream, context or the like do not belong together"),
    (200005, "INVALID_RESOURCE_HANDLE", "caller", "stream, context or the like is gone"),
    (200006, "FEATURE_UNSUPPORTED", "environment", "the feature is not supported here"),
    (200007, "PROF_MODULES_UNSUPPORTED", "caller", "the profiling switches are not supported here"),
    (300000, "STORAGE_OVER_LIMIT", "environment", "the disk is full, or over its limit"),
    (500000, "INTERNAL_ERROR", "internal", "an error inside AscendCL"),
    (500001, "FAILURE", "internal", "an error inside AscendCL"),
    (500002, "GE_FAILURE", "model", "the graph engine failed with this model"),
    (500003, "RT_FAILURE", "internal", "the runtime failed"),
    (500004, "DRV_FAILURE", "environment", "the driver failed"),
    (500005, "PROFILING_FAILURE", "internal", "the profiler failed"),
    # Runtime
    (107000, "PARAM_INVALID", "caller", "an argument is invalid (memcpy: a count of 0, or more than the room for it)"),
    (107001, "INVALID_DEVICEID", "environment", "no device has this id"),
    (107002, "CONTEXT_NULL", "caller", "this thread has no current context"),
    (107003, "STREAM_CONTEXT", "caller", "the stream is not of the current context"),
    (107004, "MODEL_CONTEXT", "caller", "the model is not of the current context"),
    (107005, "STREAM_MODEL", "caller", "the stream is not of this model"),
    (107006, "EVENT_TIMESTAMP_INVALID", "caller", "an event is not complete"),
    (107007, "EVENT_TIMESTAMP_REVERSAL", "caller", "the events' times are the wrong way round"),
    (107008, "ADDR_UNALIGNED", "caller", "a memory address is not aligned"),
    (107009, "FILE_OPEN", "environment", "a file cannot be opened"),
    (107010, "FILE_WRITE", "environment", "a file cannot be written"),
    (107011, "STREAM_SUBSCRIBE", "caller", "the stream's subscription is missing or double"),
    (107012, "THREAD_SUBSCRIBE", "caller", "the thread's subscription is missing or double"),
    (107013, "GROUP_NOT_SET", "caller", "no group is set"),
    (107014, "GROUP_NOT_CREATE", "caller", "no such group"),
    (107015, "STREAM_NO_CB_REG", "caller", "the callback's stream has no thread"),
    (107016, "INVALID_MEMORY_TYPE", "caller", "no such kind of memory"),
    (107017, "INVALID_HANDLE", "caller", "a handle is invalid"),
    (107018, "INVALID_MALLOC_TYPE", "caller", "the memory is of another kind"),
    (107019, "WAIT_TIMEOUT", "retry_process", "waiting took too long"),
    (107020, "TASK_TIMEOUT", "retry_process", "a task took too long"),
    (107021, "SYSPARAMOPT_NOT_SET", "caller", "a parameter of the context is not set"),
    (107022, "DEVICE_TASK_ABORT", "retry_process", "tasks of the device are being aborted"),
    (107023, "STREAM_ABORT", "retry_process", "tasks of the stream are being aborted"),
    (107024, "CAPTURE_DEPENDENCY", "caller", "stream capture: a wait without its event"),
    (107025, "STREAM_UNJOINED", "caller", "stream capture: a stream was not joined"),
    (107026, "MODEL_CAPTURED", "caller", "stream capture: the model is being captured"),
    (107027, "STREAM_CAPTURED", "caller", "stream capture: the stream is being captured"),
    (107028, "EVENT_CAPTURED", "caller", "stream capture: the event is being captured"),
    (107029, "STREAM_NOT_CAPTURED", "caller", "stream capture: the stream is not being captured"),
    (107030, "CAPTURE_MODE_NOT_SUPPORT", "caller", "stream capture: not possible in this mode"),
    (107031, "STREAM_CAPTURE_IMPLICIT", "caller", "stream capture: the default stream was used"),
    (107032, "STREAM_CAPTURE_CONFLICT", "caller", "stream capture: streams that depend on each other"),
    (107033, "STREAM_TASK_GROUP_STATUS", "caller", "stream capture: the task group has the wrong state"),
    (107034, "STREAM_TASK_GROUP_INTR", "caller", "stream capture: the task group was interrupted"),
    (107035, "TASK_ABORT_STOP", "retry_process", "aborting tasks came to a stop"),
    (107036, "STREAM_CAPTURE_UNMATCHED", "caller", "stream capture: it did not begin in this stream"),
    (107037, "MODEL_RUNNING", "caller", "the model is running and cannot be destroyed"),
    (107038, "STREAM_CAPTURE_WRONG_THREAD", "caller", "stream capture: it began in another thread"),
    (207000, "FEATURE_NOT_SUPPORT", "environment", "the feature is not supported here"),
    (207001, "MEMORY_ALLOCATION", "memory", "device memory is used up"),
    (207002, "MEMORY_FREE", "internal", "memory cannot be freed"),
    (207003, "AICORE_OVER_FLOW", "model", "an operator overflowed"),
    (207004, "NO_DEVICE", "environment", "no device is available"),
    (207005, "RESOURCE_ALLOC_FAIL", "busy", "a resource of the device cannot be had"),
    (207006, "NO_PERMISSION", "environment", "this user may not use the device"),
    (207007, "NO_EVENT_RESOURCE", "busy", "the device has no event left"),
    (207008, "NO_STREAM_RESOURCE", "busy", "the device has no stream left"),
    (207009, "NO_NOTIFY_RESOURCE", "busy", "the device has no notify left"),
    (207010, "NO_MODEL_RESOURCE", "busy", "the device can hold no further model"),
    (207011, "NO_CDQ_RESOURCE", "busy", "the device has no descriptor queue left"),
    (207012, "OVER_LIMIT", "busy", "there are too many queues"),
    (207013, "QUEUE_EMPTY", "caller", "the queue is empty"),
    (207014, "QUEUE_FULL", "busy", "the queue is full"),
    (207015, "REPEATED_INIT", "caller", "the queue is initialized already"),
    (207016, "AIVEC_OVER_FLOW", "model", "an operator of the vector core overflowed"),
    (207017, "OVER_FLOW", "model", "an operator overflowed"),
    (207018, "DEVICE_OOM", "memory", "device memory is used up"),
    (207019, "FEATURE_NOT_SUPPORT_UPDATE_OP", "environment", "the driver is too old for this"),
    (507000, "INTERNAL_ERROR", "internal", "an error inside the runtime"),
    (507001, "TS_ERROR", "internal", "an error inside the device's task scheduler"),
    (507002, "STREAM_TASK_FULL", "internal", "the stream holds too many tasks"),
    (507003, "STREAM_TASK_EMPTY", "internal", "the stream holds no task"),
    (507004, "STREAM_NOT_COMPLETE", "internal", "the stream's tasks are not complete"),
    (507005, "END_OF_SEQUENCE", "internal", "the AI CPU has no more tasks"),
    (507006, "EVENT_NOT_COMPLETE", "internal", "an event is not complete"),
    (507007, "CONTEXT_RELEASE_ERROR", "caller", "a device was reset more often than it was set"),
    (507008, "SOC_VERSION", "environment", "the chip's name cannot be read"),
    (507009, "TASK_TYPE_NOT_SUPPORT", "internal", "the task's type is not supported"),
    (507010, "LOST_HEARTBEAT", "device_lost", "the device's task scheduler does not answer"),
    (507011, "MODEL_EXECUTE", "retry_process", "the model failed on the device"),
    (507012, "REPORT_TIMEOUT", "retry_process", "the task scheduler did not report in time"),
    (507013, "SYS_DMA", "internal", "a copy engine failed"),
    (507014, "AICORE_TIMEOUT", "retry_process", "an AI Core kernel took too long"),
    (507015, "AICORE_EXCEPTION", "retry_process", "an AI Core kernel failed (a bad address, for one)"),
    (507016, "AICORE_TRAP_EXCEPTION", "retry_process", "an AI Core kernel stopped at a trap"),
    (507017, "AICPU_TIMEOUT", "retry_process", "an AI CPU kernel took too long"),
    (507018, "AICPU_EXCEPTION", "retry_process", "an AI CPU kernel failed"),
    (507019, "AICPU_DATADUMP_RSP_ERR", "internal", "the AI CPU did not answer after a dump"),
    (507020, "AICPU_MODEL_RSP_ERR", "internal", "the AI CPU did not answer after a model"),
    (507021, "PROFILING_ERROR", "internal", "the profiler failed"),
    (507022, "IPC_ERROR", "internal", "talking to another process failed"),
    (507023, "MODEL_ABORT_NORMAL", "internal", "the model was ended"),
    (507024, "KERNEL_UNREGISTERING", "internal", "the kernel is being unregistered"),
    (507025, "RINGBUFFER_NOT_INIT", "internal", "the ring buffer is not initialized"),
    (507026, "RINGBUFFER_NO_DATA", "internal", "the ring buffer is empty"),
    (507027, "KERNEL_LOOKUP", "internal", "a kernel is not registered"),
    (507028, "KERNEL_DUPLICATE", "internal", "a kernel is registered twice"),
    (507029, "DEBUG_REGISTER_FAIL", "internal", "debugging cannot be switched on"),
    (507030, "DEBUG_UNREGISTER_FAIL", "internal", "debugging cannot be switched off"),
    (507031, "LABEL_CONTEXT", "internal", "a label is not of the current context"),
    (507032, "PROGRAM_USE_OUT", "internal", "too many programs are registered"),
    (507033, "DEV_SETUP_ERROR", "environment", "the device cannot be started"),
    (507034, "VECTOR_CORE_TIMEOUT", "retry_process", "a vector core kernel took too long"),
    (507035, "VECTOR_CORE_EXCEPTION", "retry_process", "a vector core kernel failed"),
    (507036, "VECTOR_CORE_TRAP_EXCEPTION", "retry_process", "a vector core kernel stopped at a trap"),
    (507037, "CDQ_BATCH_ABNORMAL", "internal", "a descriptor queue cannot be had"),
    (507038, "DIE_MODE_CHANGE_ERROR", "internal", "the die mode cannot be changed"),
    (507039, "DIE_SET_ERROR", "internal", "no die can be chosen in this mode"),
    (507040, "INVALID_DIEID", "internal", "no such die"),
    (507041, "DIE_MODE_NOT_SET", "internal", "the die mode is not set"),
    (507042, "AICORE_TRAP_READ_OVERFLOW", "retry_process", "an AI Core kernel read out of bounds"),
    (507043, "AICORE_TRAP_WRITE_OVERFLOW", "retry_process", "an AI Core kernel wrote out of bounds"),
    (507044, "VECTOR_CORE_TRAP_READ_OVERFLOW", "retry_process", "a vector core kernel read out of bounds"),
    (507045, "VECTOR_CORE_TRAP_WRITE_OVERFLOW", "retry_process", "a vector core kernel wrote out of bounds"),
    (507046, "STREAM_SYNC_TIMEOUT", "retry_process", "the stream was not done in time"),
    (507047, "EVENT_SYNC_TIMEOUT", "retry_process", "the event did not come in time"),
    (507048, "FFTS_PLUS_TIMEOUT", "retry_process", "a task of the fast scheduler took too long"),
    (507049, "FFTS_PLUS_EXCEPTION", "retry_process", "a task of the fast scheduler failed"),
    (507050, "FFTS_PLUS_TRAP_EXCEPTION", "retry_process", "a task of the fast scheduler stopped at a trap"),
    (507051, "SEND_MSG", "internal", "a message to a queue cannot be sent"),
    (507052, "COPY_DATA", "internal", "data for a queue cannot be copied"),
    (507053, "DEVICE_MEM_ERROR", "device_lost", "a memory cell of the device is broken"),
    (507054, "HBM_MULTI_BIT_ECC_ERROR", "device_lost", "the device's HBM has an error that cannot be corrected"),
    (507055, "SUSPECT_DEVICE_MEM_ERROR", "device_lost", "memory of another device may be broken"),
    (507056, "LINK_ERROR", "device_lost", "the link to another device is broken"),
    (
        507057,
        "SUSPECT_REMOTE_ERROR",
        "retry_process",
        "memory of another device may be broken, or an address is out of bounds",
    ),
    (507899, "DRV_INTERNAL_ERROR", "device_lost", "an error inside the driver"),
    (507900, "AICPU_INTERNAL_ERROR", "internal", "an error inside the AI CPU"),
    (507901, "SOCKET_CLOSE", "device_lost", "the connection to the device was closed"),
    (507902, "AICPU_INFO_LOAD_RSP_ERR", "internal", "the AI CPU's scheduler failed"),
    (507903, "STREAM_CAPTURE_INVALIDATED", "internal", "stream capture: it is no longer valid"),
    (507904, "COMM_OP_RETRY_FAIL", "internal", "a communication operator failed again"),
    (507905, "SNAPSHOT_LOCK_TIMEOUT", "internal", "a snapshot's lock did not come in time"),
    (507906, "SNAPSHOT_LOCK_FAILED", "internal", "a snapshot cannot lock the process"),
    (507907, "SNAPSHOT_UNLOCK_FAILED", "internal", "a snapshot cannot unlock the process"),
    (507908, "SNAPSHOT_BACKUP_FAILED", "internal", "a snapshot cannot be taken"),
    (507909, "SNAPSHOT_RESTORE_FAILED", "internal", "a snapshot cannot be restored"),
    (507910, "HOST_MEMORY_ALREADY_REGISTERED", "caller", "host memory is registered already"),
    (507911, "HOST_MEMORY_NOT_REGISTERED", "caller", "host memory is not registered"),
    # Graph engine
    (145000, "PARAM_INVALID", "caller", "an argument is invalid"),
    (145001, "EXEC_NOT_INIT", "caller", "acl.init was not called before"),
    (145002, "EXEC_MODEL_PATH_INVALID", "model", "the model file is missing or cannot be read"),
    (145003, "EXEC_MODEL_ID_INVALID", "caller", "no model has this id"),
    (145006, "EXEC_MODEL_DATA_SIZE_INVALID", "model", "the model file is truncated, or no OM file"),
    (145007, "EXEC_MODEL_ADDR_INVALID", "caller", "the model's address is invalid"),
    (145008, "EXEC_MODEL_QUEUE_ID_INVALID", "caller", "no queue has this id"),
    (145009, "EXEC_LOAD_MODEL_REPEATED", "caller", "the model is loaded already"),
    (145011, "DYNAMIC_INPUT_ADDR_INVALID", "caller", "the gear input has no memory"),
    (
        145012,
        "DYNAMIC_INPUT_LENGTH_INVALID",
        "caller",
        "the gear input is too short, or the gear has another number of dims",
    ),
    (145013, "DYNAMIC_BATCH_SIZE_INVALID", "caller", "the model was not compiled with this gear"),
    (145014, "AIPP_BATCH_EMPTY", "caller", "image preprocessing has no batch size"),
    (145015, "AIPP_NOT_EXIST", "caller", "the model has no image preprocessing"),
    (145016, "AIPP_MODE_INVALID", "caller", "image preprocessing has another mode"),
    (145017, "OP_TASK_TYPE_INVALID", "model", "a task of the model has an unknown type"),
    (145018, "OP_KERNEL_TYPE_INVALID", "model", "a kernel of the model has an unknown type"),
    (145019, "PLGMGR_PATH_INVALID", "environment", "a library of CANN was not found"),
    (145020, "FORMAT_INVALID", "caller", "a tensor's format is invalid"),
    (145021, "SHAPE_INVALID", "caller", "a tensor's shape is invalid"),
    (145022, "DATATYPE_INVALID", "caller", "a tensor's data type is invalid"),
    (245000, "MEMORY_ALLOCATION", "memory", "memory cannot be allocated"),
    (245001, "MEMORY_OPERATE_FAILED", "internal", "memory cannot be set or copied"),
    (245002, "DEVICE_MEMORY_OPERATE_FAILED", "memory", "device memory cannot be had"),
    (545000, "INTERNAL_ERROR", "internal", "an error inside the graph engine"),
    (545001, "LOAD_MODEL", "model", "the model cannot be loaded"),
    (545002, "LOAD_MODEL_PARTITION_FAILED", "model", "the model's graph cannot be loaded"),
    (545003, "LOAD_WEIGHT_PARTITION_FAILED", "model", "the model's weights cannot be loaded"),
    (545004, "LOAD_TASK_PARTITION_FAILED", "model", "the model's tasks cannot be loaded"),
    (545005, "LOAD_KERNEL_PARTITION_FAILED", "model", "the model's kernels cannot be loaded"),
    (545006, "RELEASE_MODEL_DATA", "internal", "the model's memory cannot be freed"),
    (545007, "COMMAND_HANDLE", "internal", "a command inside the graph engine failed"),
    (545008, "GET_TENSOR_INFO", "internal", "a tensor's description cannot be read"),
    (545009, "UNLOAD_MODEL", "internal", "the model cannot be unloaded"),
    (545601, "MODEL_EXECUTE_TIMEOUT", "retry_process", "the model took too long"),
)

MEANINGS: Mapping[int, CodeMeaning] = {
    code: CodeMeaning(code=code, name=name, meaning=meaning, remedy=_REMEDY_OF.get(code, _REMEDIES[kind]), kind=kind)
    for code, name, kind, meaning in _ROWS
}
"""Every code of CANN 8.5.0: AscendCL, runtime, graph engine."""
