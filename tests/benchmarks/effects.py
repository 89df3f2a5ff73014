"""Single effects that the time of a step is made of, each as a small function with its devices written in it.

If the prediction for a workload is wrong, it is wrong for some of these too, which shows what the model lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from examples.workloads import Workload
from tests.benchmarks import effects_of_crossings as crossings
from tests.benchmarks import effects_of_ops as ops
from tests.benchmarks.effects_of_ops import DEVICE, HOST


def effects() -> Iterator[tuple[str, Callable[[], Workload]]]:
    """Effects by name, each with a function that builds its workload; where its arguments are is part of the name."""
    for where in (HOST, DEVICE):
        yield f"call_{where}", partial(ops.chain, where, 1)
        for length in (10, 100, 1000):
            yield f"chain_{length}_{where}", partial(ops.chain, where, length)
        yield f"chains_4x100_{where}", partial(ops.chain, where, 100, parallel=4)
        yield f"fan_256_{where}", partial(ops.fan, where, 256)
        yield f"arguments_64_{where}", partial(ops.many_arguments, where, 64)
        yield f"variables_64_{where}", partial(ops.many_variables, where, 64, assigned=False)
        yield f"assigned_64_{where}", partial(ops.many_variables, where, 64, assigned=True)
        yield f"shapes_100_{where}", partial(ops.shapes, where, 100)
        yield f"products_20x1024_{where}", partial(ops.products, where, 1024, 20)
        yield f"products_4x5x1024_{where}", partial(ops.products, where, 1024, 5, parallel=4)
        yield f"passes_20x16MiB_{where}", partial(ops.chain, where, 20, elements=2**22)
        yield f"passes_4x5x16MiB_{where}", partial(ops.chain, where, 5, elements=2**22, parallel=4)
        yield f"unique_4x100000_{where}", partial(ops.distinct, where, 100_000, 4)
        yield f"dense_10x256_{where}", partial(ops.dense, where, 256, 10)
        yield f"convolutions_5x64_{where}", partial(ops.convolutions, where, 64, 5)
        yield f"convolutions_back_3x64_{where}", partial(ops.convolutions, where, 64, 3, back=True)
        yield f"loop_64x1_{where}", partial(ops.loop, where, 64, 1)
        yield f"loop_64x10_{where}", partial(ops.loop, where, 64, 10)
        yield f"products_kept_12_{where}", partial(ops.kept_products, where, 12)
        yield f"passes_kept_12x8MiB_{where}", partial(ops.kept_passes, where, 12, 2**21)
        yield f"suppressions_4_apart_{where}", partial(ops.suppressions, where, 4, side=0.02)
        yield f"suppressions_4_crowded_{where}", partial(ops.suppressions, where, 4, side=0.5)
        yield f"sorted_100000_random_{where}", partial(ops.in_order, where, 100_000, drawn=True)
        yield f"sorted_100000_ascending_{where}", partial(ops.in_order, where, 100_000, drawn=False)
    for pause in (0, 10, 30, 100, 1000):
        yield f"products_16_after_{pause}_host", partial(ops.interrupted, HOST, 16, pause)
    for own in (False, True):
        yield f"vectors_24_{'own' if own else 'one'}_host", partial(ops.vectors, HOST, 24, own=own)
    yield "products_4x4096_host", partial(ops.weighted, HOST, 4)
    for src, dst in ((HOST, DEVICE), (DEVICE, HOST)):
        yield f"chain_200_tapped_40_{src}_{dst}", partial(crossings.tapped, src, dst, 200, 5)
        yield f"chain_200_fed_40_{src}_{dst}", partial(crossings.fed, src, dst, 200, 5)
    yield "call_both", partial(crossings.both, 1, 64)
    yield "chains_100_both", partial(crossings.both, 100, 64)
    yield "passes_20x4MiB_both", partial(crossings.both, 20, 2**20)
    yield "loop_16_crossing", partial(ops.loop, HOST, 16, 1, through=DEVICE)
    yield "strings_26_columns", partial(ops.string_columns, 8192, 26)
    for nbytes in (4, 2**16, 2**22):
        yield f"loop_16_taking_{nbytes}_host_device", partial(crossings.loop_taking, HOST, DEVICE, 16, nbytes)
        yield f"loop_16_taking_{nbytes}_device_host", partial(crossings.loop_taking, DEVICE, HOST, 16, nbytes)
    yield "loop_16_gathering_host_device", partial(crossings.loop_gathering, HOST, DEVICE, 16)
    yield "loop_16_gathering_host_host", partial(crossings.loop_gathering, HOST, HOST, 16)
    for src, dst in ((HOST, DEVICE), (DEVICE, HOST)):
        yield f"arguments_64_{src}_{dst}", partial(ops.many_arguments, dst, 64, made=src)
        yield f"variables_64_{src}_{dst}", partial(ops.many_variables, dst, 64, assigned=False, made=src)
        yield f"results_64_{src}_{dst}", partial(crossings.many_made, src, dst, 64)
    for nbytes in (4, 2**16, 2**22, 2**26):
        for src, dst in ((HOST, DEVICE), (DEVICE, HOST)):
            yield f"argument_{nbytes}_{src}_{dst}", partial(crossings.crossing_argument, src, dst, nbytes)
            yield f"crossing_{nbytes}_{src}_{dst}", partial(crossings.crossings, (src, dst), nbytes)
    yield "crossing_there_and_back", partial(crossings.crossings, (HOST, DEVICE, HOST), 4)
    yield "crossing_there_and_back_8", partial(crossings.crossings, (HOST, *(DEVICE, HOST) * 8), 4)
    yield "crossing_8_parallel_host_device", partial(crossings.crossings, (HOST, DEVICE), 4, parallel=8)
    yield "crossing_8_parallel_device_host", partial(crossings.crossings, (DEVICE, HOST), 4, parallel=8)
    yield "crossing_8_parallel_1MiB_host_device", partial(crossings.crossings, (HOST, DEVICE), 2**20, parallel=8)
    yield "crossing_8_parallel_1MiB_device_host", partial(crossings.crossings, (DEVICE, HOST), 2**20, parallel=8)
