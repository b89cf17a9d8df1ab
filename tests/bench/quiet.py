"""How quiet the machine is while something is measured: what the hypervisor and other programs took of its
CPUs."""
import os
import resource

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def cpu_seconds():
    """(busy, stolen) of all CPUs since the start of the machine."""
    with open("/proc/stat", encoding="ascii") as stat:
        user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, stat.readline().split()[1:9])
    return (user + nice + system + irq + softirq) / TICKS_PER_S, steal / TICKS_PER_S


def own_seconds():
    """Of this process and its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


class Quiet:
    """Around something whose programs have ended at its end. steal, others: CPUs' time, as a share of what
    all CPUs have in that time. The kernel's own threads, which move the packets, count as others."""

    def __enter__(self):
        self.before = (os.times().elapsed, *cpu_seconds(), own_seconds())
        return self

    def __exit__(self, *_):
        took, busy, stolen, own = (
            now - then for now, then in zip((os.times().elapsed, *cpu_seconds(), own_seconds()), self.before)
        )
        whole = max(took * os.cpu_count(), 1e-9)
        self.steal, self.others = stolen / whole, max(busy - own, 0.0) / whole


def spread(values):
    """(largest - smallest) / median of them; None: of fewer than two."""
    if len(values) < 2:
        return None
    values = sorted(values)
    return (values[-1] - values[0]) / values[len(values) // 2]
