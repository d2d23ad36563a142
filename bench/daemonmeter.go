package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A daemonPace is the rate of a server and the cost of one message, in one round.
type daemonPace struct {
	// Rate is messages a second: sent, received and acked, except in W4.
	Rate float64 `json:"messages_per_second"`
	// ServerCPU and ClientCPU are processor time in microseconds a message.
	ServerCPU float64 `json:"server_cpu_us"`
	ClientCPU float64 `json:"client_cpu_us"`
	// ServerSwitches and ClientSwitches are context switches a message, voluntary or not.
	ServerSwitches float64 `json:"server_switches"`
	ClientSwitches float64 `json:"client_switches"`
	// Flushes is how often a second the disk was flushed, by all processes of the machine;
	// 0 where the system does not count it.
	Flushes float64 `json:"disk_flushes_per_second"`
	// Resident is the server's memory at the end, in MiB.
	Resident float64 `json:"server_mib"`
	// P50 and P99 are microseconds from enqueue to dequeue (W3).
	P50 float64 `json:"p50_us,omitempty"`
	P99 float64 `json:"p99_us,omitempty"`
	// Waiting is how many messages waited, and BytesWaiting the memory that each added (W4).
	Waiting      uint64  `json:"waiting,omitempty"`
	BytesWaiting float64 `json:"bytes_per_waiting_message,omitempty"`
}

// A usage is processor time and context switches.
type usage struct {
	processor time.Duration
	switches  uint64
}

// threads is the usage of each thread of a server, by its id.
type threads map[int]usage

// since returns the usage since before. Threads that ended in between do not count.
func (t threads) since(before threads) usage {
	var sum usage
	for id, now := range t {
		then := before[id]
		if now.processor < then.processor || now.switches < then.switches { // the id was used again
			then = usage{}
		}
		sum.processor += now.processor - then.processor
		sum.switches += now.switches - then.switches
	}
	return sum
}

// threads reads the usage of the server's threads, child processes included.
func (p *daemonProcess) threads() threads {
	all := threads{}
	for _, pid := range p.tree() {
		folders, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
		for _, folder := range folders {
			id, err := strconv.Atoi(filepath.Base(folder))
			if err != nil {
				continue
			}
			status := filepath.Join(folder, "status")
			all[id] = usage{
				processor: runTime(filepath.Join(folder, "schedstat")),
				switches:  field(status, "voluntary_ctxt_switches:") + field(status, "nonvoluntary_ctxt_switches:"),
			}
		}
	}
	return all
}

// runTime reads the processor time of a thread, which Linux counts in nanoseconds: the
// first number of the file.
func runTime(schedstat string) time.Duration {
	text, err := os.ReadFile(schedstat)
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(text), " ")
	ns, _ := strconv.ParseInt(first, 10, 64) // 0 if it is not a number
	return time.Duration(ns)
}

// ownUsage returns the usage of this process.
func ownUsage() usage {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return usage{}
	}
	return usage{processor: time.Duration(u.Utime.Nano() + u.Stime.Nano()), switches: uint64(u.Nvcsw + u.Nivcsw)}
}

// A daemonMeter is what a server, this process and the disk have used so far.
type daemonMeter struct {
	server   threads
	client   usage
	flushes  uint64
	at       time.Time
	resident float64
}

func (s *daemonStand) meter() daemonMeter {
	m := daemonMeter{at: time.Now(), client: ownUsage()}
	if s.process != nil {
		m.server, m.resident, m.flushes = s.process.threads(), s.process.resident(), diskFlushes(s.process.disk)
	}
	return m
}

// pace returns the pace of a run between two readings, in which the messages took elapsed.
func (m daemonMeter) pace(after daemonMeter, messages uint64, elapsed time.Duration) daemonPace {
	n := float64(max(messages, 1))
	server := after.server.since(m.server)
	return daemonPace{
		Rate:           float64(messages) / max(elapsed, 1).Seconds(),
		ServerCPU:      microseconds(server.processor) / n,
		ClientCPU:      microseconds(after.client.processor-m.client.processor) / n,
		ServerSwitches: float64(server.switches) / n,
		ClientSwitches: float64(after.client.switches-m.client.switches) / n,
		Flushes:        float64(after.flushes-m.flushes) / max(after.at.Sub(m.at), 1).Seconds(),
		Resident:       after.resident,
	}
}

func microseconds(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

// diskOf returns the file in which Linux counts what the disk under a directory has done,
// or "" where there is none.
func diskOf(dir string) string {
	var s syscall.Stat_t
	if syscall.Stat(dir, &s) != nil {
		return ""
	}
	major, minor := s.Dev>>8&0xfff|s.Dev>>32&^0xfff, s.Dev&0xff|s.Dev>>12&^0xff
	device, err := filepath.EvalSymlinks(fmt.Sprintf("/sys/dev/block/%d:%d", major, minor))
	if err != nil {
		return ""
	}
	if _, err := os.Stat(filepath.Join(device, "partition")); err == nil {
		device = filepath.Dir(device) // flushes are those of the whole disk
	}
	return filepath.Join(device, "stat")
}

// diskFlushes reads how many flushes the disk has completed: the 16th number of the file.
func diskFlushes(file string) uint64 {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	const flushes = 15
	fields := strings.Fields(string(text))
	if len(fields) <= flushes {
		return 0
	}
	n, _ := strconv.ParseUint(fields[flushes], 10, 64) // 0 if it is not a number
	return n
}
