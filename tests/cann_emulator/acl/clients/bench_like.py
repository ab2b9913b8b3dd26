"""In the style of ais_bench: warm-up, a timed loop around the waiting call, copies timed apart, a summary line.

Also the asynchronous form with callbacks in a thread of its own, and events for the device's time.
"""

import sys
import time

import acl
import numpy as np


def check(ret):
    assert ret == 0, (ret, acl.get_recent_err_msg())


class Session:
    def __init__(self, path, device_id):
        check(acl.init())
        check(acl.rt.set_device(device_id))
        self.device_id = device_id
        self.context, ret = acl.rt.get_context()
        check(ret)
        self.model_id, ret = acl.mdl.load_from_file(path)
        check(ret)
        self.desc = acl.mdl.create_desc()
        check(acl.mdl.get_desc(self.desc, self.model_id))
        self.given, self.inputs = self.dataset(acl.mdl.get_num_inputs, acl.mdl.get_input_size_by_index)
        self.wanted, self.outputs = self.dataset(acl.mdl.get_num_outputs, acl.mdl.get_output_size_by_index)

    def dataset(self, count_of, size_of):
        dataset, memory = acl.mdl.create_dataset(), []
        for i in range(count_of(self.desc)):
            size = size_of(self.desc, i)
            device, ret = acl.rt.malloc(size, 0)
            check(ret)
            host, ret = acl.rt.malloc_host(size)
            check(ret)
            memory.append((device, host, size))
            check(acl.mdl.add_dataset_buffer(dataset, acl.create_data_buffer(device, size))[1])
        return dataset, memory

    def loop(self, count):
        times = {"H2D_latency": [], "NPU_compute_time": [], "D2H_latency": []}
        for _ in range(count):
            start = time.perf_counter()
            for device, host, size in self.inputs:
                check(acl.rt.memset(host, size, 0, size))
                check(acl.rt.memcpy(device, size, host, size, 1))
            copied = time.perf_counter()
            check(acl.mdl.execute(self.model_id, self.given, self.wanted))
            done = time.perf_counter()
            for device, host, size in self.outputs:
                check(acl.rt.memcpy(host, size, device, size, 2))
            end = time.perf_counter()
            for name, spent in zip(times, (copied - start, done - copied, end - done), strict=True):
                times[name].append(spent * 1000)
        return times

    def device_ms(self, path, count):
        """A second load, as the two calls exclude each other; events and callbacks on one stream."""
        model_id, ret = acl.mdl.load_from_file(path)
        check(ret)
        stream, ret = acl.rt.create_stream()
        check(ret)
        seen, ends = [], []

        def serve(arguments):
            check(acl.rt.set_context(arguments[0]))
            while not ends:
                acl.rt.process_report(arguments[1])

        thread, ret = acl.util.start_thread(serve, [self.context, 50])
        check(ret)
        check(acl.rt.subscribe_report(thread, stream))
        events = [acl.rt.create_event_with_flag(8)[0] for _ in range(2)]
        check(acl.rt.record_event(events[0], stream))
        for number in range(count):
            check(acl.mdl.execute_async(model_id, self.given, self.wanted, stream))
            check(acl.rt.launch_callback(lambda data: seen.append(data[0]), [number], 1, stream))
        check(acl.rt.record_event(events[1], stream))
        check(acl.rt.synchronize_stream(stream))
        elapsed, ret = acl.rt.event_elapsed_time(*events)
        check(ret)
        check(acl.rt.unsubscribe_report(thread, stream))
        ends.append(True)
        check(acl.util.stop_thread(thread))
        for event in events:
            check(acl.rt.destroy_event(event))
        check(acl.rt.destroy_stream(stream))
        check(acl.mdl.unload(model_id))
        assert seen == list(range(count)), seen
        return elapsed / count

    def free(self):
        for dataset, memory in ((self.given, self.inputs), (self.wanted, self.outputs)):
            for i in range(acl.mdl.get_dataset_num_buffers(dataset)):
                check(acl.destroy_data_buffer(acl.mdl.get_dataset_buffer(dataset, i)))
            check(acl.mdl.destroy_dataset(dataset))
            for device, host, _ in memory:
                check(acl.rt.free(device))
                check(acl.rt.free_host(host))
        check(acl.mdl.destroy_desc(self.desc))
        check(acl.mdl.unload(self.model_id))
        check(acl.rt.reset_device(self.device_id))
        check(acl.finalize())


def main(path, loops):
    session = Session(path, 0)
    session.loop(1)
    times = session.loop(int(loops))
    for name, values in times.items():
        p99 = np.percentile(values, 99)
        print(f"[INFO] {name} (ms): min = {min(values):.5f}, mean = {np.mean(values):.5f}, percentile(99%) = {p99:.5f}")
    print(f"[INFO] throughput: {1000 / np.mean(times['NPU_compute_time']):.2f}")
    print(f"device {min(session.device_ms(path, 5) for _ in range(20)):.6f}")
    session.free()
    print("released")


if __name__ == "__main__":
    main(*sys.argv[1:])
