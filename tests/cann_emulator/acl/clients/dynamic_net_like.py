"""In the style of CNN_Transformer's acl_net: dynamic dims by dict, execute_async on a stream, released in __del__.

Call forms as there: module-level dict of bound functions, the gear index asked for each call, dims from
get_input_dynamic_dims passed back, output cut by get_cur_output_dims, malloc_host per call.
"""

import functools
import sys

import acl
import numpy as np

buffer_method = {"in": acl.mdl.get_input_size_by_index, "out": acl.mdl.get_output_size_by_index}
ACL_DTYPE = {0: "float32", 1: "float16", 3: "int32", 9: "int64"}


def check_ret(message, ret):
    if ret != 0:
        raise Exception(f"{message} failed ret = {ret}")


class Net:
    def __init__(self, path):
        self.model_id, ret = acl.mdl.load_from_file(path)
        check_ret("acl.mdl.load_from_file", ret)
        self.desc = acl.mdl.create_desc()
        acl.mdl.get_desc(self.desc, self.model_id)
        self.dataset_in, self.dataset_out = acl.mdl.create_dataset(), acl.mdl.create_dataset()
        self.stream, ret = acl.rt.create_stream()
        check_ret("acl.rt.create_stream", ret)
        self.ins = self.fill(self.dataset_in, "in", acl.mdl.get_num_inputs(self.desc))
        self.outs = self.fill(self.dataset_out, "out", acl.mdl.get_num_outputs(self.desc))

    def fill(self, dataset, side, count):
        found = []
        for i in range(count):
            size = buffer_method[side](self.desc, i)
            pointer, ret = acl.rt.malloc(size, 0)
            check_ret("acl.rt.malloc", ret)
            found.append({"size": size, "buffer": pointer})
            _, ret = acl.mdl.add_dataset_buffer(dataset, acl.create_data_buffer(pointer, size))
            check_ret("add_dataset_buffer", ret)
        return found

    def __call__(self, arrays, dims):
        index, ret = acl.mdl.get_input_index_by_name(self.desc, "ascend_mbatch_shape_data")
        check_ret("get_input_index_by_name", ret)
        check_ret("set_input_dynamic_dims", acl.mdl.set_input_dynamic_dims(self.model_id, self.dataset_in, index, dims))
        for item, array in zip(self.ins, arrays, strict=False):
            data = array.tobytes()
            ret = acl.rt.memcpy(item["buffer"], item["size"], acl.util.bytes_to_ptr(data), len(data), 1)
            check_ret("acl.rt.memcpy", ret)
        check_ret("execute", acl.mdl.execute_async(self.model_id, self.dataset_in, self.dataset_out, self.stream))
        check_ret("synchronize", acl.rt.synchronize_stream(self.stream))
        return [self.fetch(i, item) for i, item in enumerate(self.outs)]

    def fetch(self, index, item):
        host, ret = acl.rt.malloc_host(item["size"])
        check_ret("acl.rt.malloc_host", ret)
        acl.rt.memcpy(host, item["size"], item["buffer"], item["size"], 2)
        dims, ret = acl.mdl.get_cur_output_dims(self.desc, index)
        check_ret("get_cur_output_dims", ret)
        count = functools.reduce(lambda a, b: a * b, dims.get("dims"))
        dtype = np.dtype(ACL_DTYPE[acl.mdl.get_output_data_type(self.desc, index)])
        view = acl.util.ptr_to_numpy(host, (item["size"],), 1)
        array = np.frombuffer(bytearray(view[: count * dtype.itemsize]), dtype, count).reshape(dims["dims"])
        acl.rt.free_host(host)
        return array

    def __del__(self):
        check_ret("acl.mdl.unload", acl.mdl.unload(self.model_id))
        acl.mdl.destroy_desc(self.desc)
        for dataset in (self.dataset_in, self.dataset_out):
            for i in range(acl.mdl.get_dataset_num_buffers(dataset)):
                acl.destroy_data_buffer(acl.mdl.get_dataset_buffer(dataset, i))
            acl.mdl.destroy_dataset(dataset)
        for item in (*self.ins, *self.outs):
            acl.rt.free(item["buffer"])
        check_ret("acl.rt.destroy_stream", acl.rt.destroy_stream(self.stream))


def main(path, result):
    check_ret("acl.init", acl.init())
    check_ret("acl.rt.set_device", acl.rt.set_device(0))
    context, ret = acl.rt.create_context(0)
    check_ret("acl.rt.create_context", ret)
    net = Net(path)
    count, ret = acl.mdl.get_input_dynamic_gear_count(net.desc, -1)
    check_ret("gear_count", ret)
    gears, ret = acl.mdl.get_input_dynamic_dims(net.desc, -1, count)
    check_ret("get_input_dynamic_dims", ret)
    results = {}
    for number, gear in enumerate(gears):
        axes = gear["dims"]
        left = np.arange(axes[1], dtype=np.float32).reshape(axes[:2])
        right = np.ones(axes[2:], np.float32) * number
        (results[f"gear{number}"],) = net([left, right], gear)
    np.savez(result, **results)
    del net
    check_ret("destroy_context", acl.rt.destroy_context(context))
    check_ret("reset_device", acl.rt.reset_device(0))
    check_ret("finalize", acl.finalize())
    print("released")


if __name__ == "__main__":
    main(*sys.argv[1:])
