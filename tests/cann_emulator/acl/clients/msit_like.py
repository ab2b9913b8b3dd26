"""In the style of msit's acl_inference: probes an existing set-up, tolerates a second init, describes input shapes.

Call forms as there: get_device as a probe before init, 100002 accepted, set_dataset_tensor_desc on every input,
np.prod sizes, host memory kept, ptr_to_bytes, dataset returned as a tuple.
"""

import sys

import acl
import numpy as np

REPEAT_INITIALIZE = 100002
TYPES = {0: np.float32, 1: np.float16, 2: np.int8, 3: np.int32, 9: np.int64, 12: np.bool_}
SIZE_OF = {"in": acl.mdl.get_input_size_by_index, "out": acl.mdl.get_output_size_by_index}


def check_ret(message, ret, accepted=()):
    if ret not in (0, *accepted):
        raise RuntimeError(f"{message} failed ret={ret} {acl.get_recent_err_msg()}")


class Inference:
    def __init__(self, path, device_id=0):
        _, ret = acl.rt.get_device()
        self.owner = ret != 0
        check_ret("acl.init", acl.init(), (REPEAT_INITIALIZE,))
        if self.owner:
            check_ret("acl.rt.set_device", acl.rt.set_device(device_id))
        self.device_id = device_id
        self.model_id, ret = acl.mdl.load_from_file(path)
        check_ret("acl.mdl.load_from_file", ret)
        self.desc = acl.mdl.create_desc()
        check_ret("acl.mdl.get_desc", acl.mdl.get_desc(self.desc, self.model_id))
        self.names = [acl.mdl.get_input_name_by_index(self.desc, i) for i in range(acl.mdl.get_num_inputs(self.desc))]
        self.memory = {side: self.allocate(side) for side in ("in", "out")}
        self.host = [self.host_memory(size) for _, size in self.memory["out"]]

    def allocate(self, side):
        count = acl.mdl.get_num_inputs(self.desc) if side == "in" else acl.mdl.get_num_outputs(self.desc)
        found = []
        for i in range(count):
            size = SIZE_OF[side](self.desc, i)
            pointer, ret = acl.rt.malloc(size, 0)
            check_ret("acl.rt.malloc", ret)
            found.append((pointer, size))
        return found

    @staticmethod
    def host_memory(size):
        pointer, ret = acl.rt.malloc_host(size)
        check_ret("acl.rt.malloc_host", ret)
        return pointer

    def dataset(self, side, shapes):
        dataset = acl.mdl.create_dataset()
        for i, (pointer, size) in enumerate(self.memory[side]):
            _, ret = acl.mdl.add_dataset_buffer(dataset, acl.create_data_buffer(pointer, size))
            check_ret("acl.mdl.add_dataset_buffer", ret)
            if side == "in":
                described = acl.create_tensor_desc(
                    acl.mdl.get_input_data_type(self.desc, i), list(shapes[i]), acl.mdl.get_input_format(self.desc, i)
                )
                dataset, ret = acl.mdl.set_dataset_tensor_desc(dataset, described, i)
                check_ret("acl.mdl.set_dataset_tensor_desc", ret)
                acl.destroy_tensor_desc(described)
        return dataset

    def __call__(self, feeds):
        arrays = [feeds[name] for name in self.names]
        for (pointer, size), array in zip(self.memory["in"], arrays, strict=True):
            data = array.tobytes()
            check_ret("acl.rt.memcpy", acl.rt.memcpy(pointer, size, acl.util.bytes_to_ptr(data), len(data), 1))
        given, wanted = self.dataset("in", [a.shape for a in arrays]), self.dataset("out", [])
        check_ret("acl.mdl.execute", acl.mdl.execute(self.model_id, given, wanted))
        results = []
        for i, (pointer, size) in enumerate(self.memory["out"]):
            shape = self.output_shape(wanted, i)
            dtype = np.dtype(TYPES[acl.mdl.get_output_data_type(self.desc, i)])
            count = int(np.prod(shape)) * dtype.itemsize
            check_ret("acl.rt.memcpy", acl.rt.memcpy(self.host[i], size, pointer, count, 2))
            results.append(np.frombuffer(acl.util.ptr_to_bytes(self.host[i], count), dtype).reshape(shape))
        for dataset in (given, wanted):
            for i in range(acl.mdl.get_dataset_num_buffers(dataset)):
                check_ret("destroy", acl.destroy_data_buffer(acl.mdl.get_dataset_buffer(dataset, i)))
            check_ret("acl.mdl.destroy_dataset", acl.mdl.destroy_dataset(dataset))
        return results

    def output_shape(self, dataset, index):
        described = acl.mdl.get_dataset_tensor_desc(dataset, index)
        if described:
            sizes = [acl.get_tensor_desc_dim_v2(described, i) for i in range(acl.get_tensor_desc_num_dims(described))]
            return [size for size, ret in sizes if ret == 0]
        dims, ret = acl.mdl.get_cur_output_dims(self.desc, index)
        check_ret("acl.mdl.get_cur_output_dims", ret)
        return dims["dims"]

    def release(self):
        check_ret("acl.mdl.unload", acl.mdl.unload(self.model_id))
        check_ret("acl.mdl.destroy_desc", acl.mdl.destroy_desc(self.desc))
        for pointer, _ in (*self.memory["in"], *self.memory["out"]):
            check_ret("acl.rt.free", acl.rt.free(pointer))
        for pointer in self.host:
            check_ret("acl.rt.free_host", acl.rt.free_host(pointer))
        if self.owner:
            check_ret("acl.rt.reset_device", acl.rt.reset_device(self.device_id))
            check_ret("acl.finalize", acl.finalize())


def main(path, values, result):
    feeds = dict(np.load(values))
    first = Inference(path)
    second = Inference(path)
    answers = first(feeds)
    for mine, other in zip(answers, second(feeds), strict=True):
        np.testing.assert_array_equal(mine, other)
    second.release()
    first.release()
    np.save(result, answers[0])
    print("released")


if __name__ == "__main__":
    main(*sys.argv[1:])
