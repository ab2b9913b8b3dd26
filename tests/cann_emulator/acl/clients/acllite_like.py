"""In the style of Ascend/samples python/common/acllite: one class for the device, one for a model, per-call datasets.

Call forms as there: dims taken by index out of the tuple, results copied into a bytes object through its own pointer,
dir(acl.util) asked first, everything released in __del__.
"""

import sys
from pathlib import Path

import acl
import numpy as np

ACL_HOST = 1
MALLOC_NORMAL_ONLY = 2
HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE = 1, 2, 3
TYPES = {0: np.float32, 1: np.float16, 3: np.int32, 9: np.int64}


def check(name, ret):
    if ret != 0:
        raise RuntimeError(f"{name} failed ret_int={ret}")


class Image:
    run_mode, _ = acl.rt.get_run_mode()  # at class creation, before acl.init


class Resource:
    def __init__(self, device_id=0):
        self.device_id = device_id
        check("acl.init", acl.init())
        check("acl.rt.set_device", acl.rt.set_device(device_id))
        self.context, ret = acl.rt.create_context(device_id)
        check("acl.rt.create_context", ret)
        self.stream, ret = acl.rt.create_stream()
        check("acl.rt.create_stream", ret)

    def __del__(self):
        if self.stream:
            acl.rt.destroy_stream(self.stream)
        if self.context:
            acl.rt.destroy_context(self.context)
        acl.rt.reset_device(self.device_id)
        acl.finalize()
        print("released")


class Model:
    def __init__(self, path, from_memory):
        if from_memory:
            content = Path(path).read_bytes()
            self.model_id, ret = acl.mdl.load_from_mem(acl.util.bytes_to_ptr(content), len(content))
        else:
            self.model_id, ret = acl.mdl.load_from_file(path)
        check("load", ret)
        self.desc = acl.mdl.create_desc()
        check("get_desc", acl.mdl.get_desc(self.desc, self.model_id))
        self.kept = [{"addr": None, "size": 0} for _ in range(acl.mdl.get_num_inputs(self.desc))]
        self.outputs = acl.mdl.create_dataset()
        for i in range(acl.mdl.get_num_outputs(self.desc)):
            size = acl.mdl.get_output_size_by_index(self.desc, i)
            memory, ret = acl.rt.malloc(size, MALLOC_NORMAL_ONLY)
            check("malloc", ret)
            _, ret = acl.mdl.add_dataset_buffer(self.outputs, acl.create_data_buffer(memory, size))
            check("add_dataset_buffer", ret)

    def to_device(self, array, index):
        if "bytes_to_ptr" in dir(acl.util):
            data = array.tobytes()
            pointer = acl.util.bytes_to_ptr(data)
        else:
            pointer = acl.util.numpy_to_ptr(array)
        size, item = array.size * array.itemsize, self.kept[index]
        if item["addr"] is None:
            item["addr"], ret = acl.rt.malloc(size, MALLOC_NORMAL_ONLY)
            check("malloc", ret)
            item["size"] = size
        check("memcpy", acl.rt.memcpy(item["addr"], size, pointer, size, HOST_TO_DEVICE))
        return item["addr"], size

    def execute(self, arrays, batch=None):
        inputs = acl.mdl.create_dataset()
        items = [self.to_device(array, i) for i, array in enumerate(arrays)]
        index, ret = acl.mdl.get_input_index_by_name(self.desc, "ascend_mbatch_shape_data")
        if ret == 0:
            size = acl.mdl.get_input_size_by_index(self.desc, index)
            memory, ret = acl.rt.malloc(size, MALLOC_NORMAL_ONLY)
            check("malloc", ret)
            items.append((memory, size))
        for pointer, size in items:
            _, ret = acl.mdl.add_dataset_buffer(inputs, acl.create_data_buffer(pointer, size))
            check("add_dataset_buffer", ret)
        if batch is not None:
            gears, ret = acl.mdl.get_dynamic_batch(self.desc)
            check("get_dynamic_batch", ret)
            assert batch in gears["batch"], gears
            check("set_dynamic_batch_size", acl.mdl.set_dynamic_batch_size(self.model_id, inputs, index, batch))
        check("execute", acl.mdl.execute(self.model_id, inputs, self.outputs))
        self.release_dataset(inputs, free_memory=False)
        if batch is not None:
            acl.rt.free(items[-1][0])
        return [self.fetch(i) for i in range(acl.mdl.get_dataset_num_buffers(self.outputs))]

    def fetch(self, index):
        buffer = acl.mdl.get_dataset_buffer(self.outputs, index)
        address, size = acl.get_data_buffer_addr(buffer), int(acl.get_data_buffer_size(buffer))
        dims = acl.mdl.get_output_dims(self.desc, index)
        shape = tuple(dims[0]["dims"])
        dtype = TYPES[acl.mdl.get_output_data_type(self.desc, index)]
        data = np.zeros(shape, dtype).tobytes()
        check("memcpy", acl.rt.memcpy(acl.util.bytes_to_ptr(data), len(data), address, size, DEVICE_TO_HOST))
        return np.frombuffer(data, dtype).reshape(shape).copy()

    def release_dataset(self, dataset, free_memory):
        for i in range(acl.mdl.get_dataset_num_buffers(dataset)):
            buffer = acl.mdl.get_dataset_buffer(dataset, i)
            if free_memory:
                acl.rt.free(acl.get_data_buffer_addr(buffer))
            check("destroy_data_buffer", acl.destroy_data_buffer(buffer))
        check("destroy_dataset", acl.mdl.destroy_dataset(dataset))

    def destroy(self):
        self.release_dataset(self.outputs, free_memory=True)
        for item in self.kept:
            if item["addr"]:
                acl.rt.free(item["addr"])
        if self.model_id:
            check("unload", acl.mdl.unload(self.model_id))
        check("destroy_desc", acl.mdl.destroy_desc(self.desc))


def main(path, values, result, *options):
    resource = Resource()
    model = Model(path, "memory" in options)
    x = np.load(values)
    batch = len(x) if "gear" in options else None
    for _ in range(3):
        (y,) = model.execute([x], batch)
    np.save(result, y[: len(x)])
    model.destroy()
    del resource


if __name__ == "__main__":
    main(*sys.argv[1:])
