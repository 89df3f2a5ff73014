"""What solvers cite: one reference a line, with authors, title, where, when, and a DOI or an address."""

from __future__ import annotations

from placer import __version__

STONE = (
    "H. S. Stone, Multiprocessor scheduling with the aid of network flow algorithms, IEEE Transactions on Software Engineering "
    "SE-3(1), 1977, doi:10.1109/TSE.1977.233840"
)
IHLER = (
    "E. Ihler, D. Wagner, F. Wagner, Modeling hypergraphs by graphs with the same mincut properties, Information Processing "
    "Letters 45(4), 1993, doi:10.1016/0020-0190(93)90115-P"
)
HELD = (
    "M. Held, R. M. Karp, The traveling-salesman problem and minimum spanning trees: part II, Mathematical Programming 1, 1971, "
    "doi:10.1007/BF01584070"
)
FISHER = (
    "M. L. Fisher, The Lagrangian relaxation method for solving integer programming problems, Management Science 27(1), 1981, "
    "doi:10.1287/mnsc.27.1.1"
)
LAND = (
    "A. H. Land, A. G. Doig, An automatic method of solving discrete programming problems, Econometrica 28(3), 1960, "
    "doi:10.2307/1910129"
)
MARSTEN = (
    "R. E. Marsten, W. W. Hogan, J. W. Blankenship, The boxstep method for large-scale optimization, Operations Research 23(3), "
    "1975, doi:10.1287/opre.23.3.389"
)
BOYKOV = (
    "Y. Boykov, O. Veksler, R. Zabih, Fast approximate energy minimization via graph cuts, IEEE Transactions on Pattern Analysis "
    "and Machine Intelligence 23(11), 2001, doi:10.1109/34.969114"
)
PERRON = (
    "L. Perron, F. Didier, S. Gay, The CP-SAT-LP solver, 29th International Conference on Principles and Practice of Constraint "
    "Programming (CP), 2023, doi:10.4230/LIPIcs.CP.2023.3"
)
SHAW = (
    "P. Shaw, Using constraint programming and local search methods to solve vehicle routing problems, 4th International "
    "Conference on Principles and Practice of Constraint Programming (CP), 1998, doi:10.1007/3-540-49481-2_30"
)
KOLMOGOROV = (
    "V. Kolmogorov, Convergent tree-reweighted message passing for energy minimization, IEEE Transactions on Pattern Analysis "
    "and Machine Intelligence 28(10), 2006, doi:10.1109/TPAMI.2006.200"
)
BARAHONA = (
    "F. Barahona, R. Anbil, The volume algorithm: producing primal solutions with a subgradient method, Mathematical Programming "
    "87(3), 2000, doi:10.1007/s101070050002"
)
TOPCUOGLU = (
    "H. Topcuoglu, S. Hariri, M.-Y. Wu, Performance-effective and low-complexity task scheduling for heterogeneous computing, "
    "IEEE Transactions on Parallel and Distributed Systems 13(3), 2002, doi:10.1109/71.993206"
)
ARABNEJAD = (
    "H. Arabnejad, J. G. Barbosa, List scheduling algorithm for heterogeneous systems by an optimistic cost table, IEEE "
    "Transactions on Parallel and Distributed Systems 25(3), 2014, doi:10.1109/TPDS.2013.57"
)
BARNARD = (
    "S. T. Barnard, H. D. Simon, Fast multilevel implementation of recursive spectral bisection for partitioning unstructured "
    "problems, Concurrency: Practice and Experience 6(2), 1994, doi:10.1002/cpe.4330060203"
)
KARYPIS = (
    "G. Karypis, V. Kumar, A fast and high quality multilevel scheme for partitioning irregular graphs, SIAM Journal on "
    "Scientific Computing 20(1), 1998, doi:10.1137/S1064827595287997"
)
HANSEN = (
    "P. Hansen, N. Mladenović, Variable neighborhood search: principles and applications, European Journal of Operational "
    "Research 130(3), 2001, doi:10.1016/S0377-2217(00)00100-4"
)
BAECHI = (
    "B. Jeon, L. Cai, C. Shetty, P. Srivastava, J. Jiang, X. Ke, Y. Meng, C. Xie, I. Gupta, Baechi: fast device placement of "
    "machine learning graphs, 2023, arXiv:2301.08695"
)
HWANG = (
    "J.-J. Hwang, Y.-C. Chow, F. D. Anger, C.-Y. Lee, Scheduling precedence graphs in systems with interprocessor communication "
    "times, SIAM Journal on Computing 18(2), 1989, doi:10.1137/0218016"
)
HANEN = (
    "C. Hanen, A. Munier, An approximation algorithm for scheduling dependent tasks on m processors with small communication "
    "delays, IEEE Symposium on Emerging Technologies and Factory Automation (ETFA), 1995, https://hal.science/hal-01185825"
)
TARNAWSKI = (
    "J. Tarnawski, A. Phanishayee, N. R. Devanur, D. Mahajan, F. Nina Paravecino, Efficient algorithms for device placement of "
    "DNN graph operators, Advances in Neural Information Processing Systems (NeurIPS) 33, 2020, arXiv:2006.16423"
)
GUGGER = (
    "S. Gugger, L. Debut, T. Wolf, P. Schmid, Z. Mueller, S. Mangrulkar, M. Sun, B. Bossan, Accelerate: training and inference "
    "at scale made simple, efficient and adaptable, 2022, infer_auto_device_map in "
    "https://github.com/huggingface/accelerate/blob/main/src/accelerate/utils/modeling.py"
)
ONNX_RUNTIME = (
    "ONNX Runtime developers, ONNX Runtime, 2018, GetCpuPreferredNodes in "
    "https://github.com/microsoft/onnxruntime/blob/main/onnxruntime/core/framework/fallback_cpu_capability.cc"
)
TENSORFLOW = (
    "M. Abadi and others, TensorFlow: a system for large-scale machine learning, 12th USENIX Symposium on Operating Systems "
    "Design and Implementation (OSDI), 2016, arXiv:1605.08695, "
    "https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/common_runtime/placer.cc"
)
KIRKPATRICK = (
    "S. Kirkpatrick, C. D. Gelatt, M. P. Vecchi, Optimization by simulated annealing, Science 220(4598), 1983, "
    "doi:10.1126/science.220.4598.671"
)
GONCALVES = (
    "J. F. Gonçalves, M. G. C. Resende, Biased random-key genetic algorithms for combinatorial optimization, Journal of "
    "Heuristics 17, 2011, doi:10.1007/s10732-010-9143-1"
)
PALIWAL = (
    "A. Paliwal, F. Gimeno, V. Nair, Y. Li, M. Lubin, P. Kohli, O. Vinyals, Reinforced genetic algorithm learning for optimizing "
    "computation graphs, International Conference on Learning Representations (ICLR), 2020, arXiv:1905.02494"
)


def here(what: str) -> str:
    """What was made for this package, in words."""
    return f"placer {__version__}, 2026: {what}"


def lines(*references: str) -> str:
    """References, one a line."""
    return "\n".join(references)
