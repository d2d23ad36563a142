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
	// Flushes is how often a second the server flushed a file to the disk. It is nil where
	// calls are not counted.
	Flushes *float64 `json:"flushes_per_second,omitempty"`
	// Requests is how many requests a message took, those that found no message included
	// (SQS).
	Requests float64 `json:"requests,omitempty"`
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

// fieldsOf reads the words of a file, none if it cannot be read.
func fieldsOf(file string) []string {
	text, _ := os.ReadFile(file) // it may have ended
	return strings.Fields(string(text))
}

// tree returns the server's process and its descendants, and those of the server beside it.
func (p *daemonProcess) tree() []int {
	if p == nil {
		return nil
	}
	all := []int{p.command.Process.Pid}
	for i := 0; i < len(all); i++ {
		files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", all[i]))
		for _, file := range files {
			for _, word := range fieldsOf(file) {
				if pid, err := strconv.Atoi(word); err == nil {
					all = append(all, pid)
				}
			}
		}
	}
	return append(all, p.beside.tree()...)
}

// runTime reads the processor time of a thread, which Linux counts in nanoseconds: the
// first number of the file.
func runTime(schedstat string) time.Duration {
	words := fieldsOf(schedstat)
	if len(words) == 0 {
		return 0
	}
	ns, _ := strconv.ParseInt(words[0], 10, 64) // 0 if it is not a number
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

// A daemonMeter is what a server and this process have used so far.
type daemonMeter struct {
	server   threads
	client   usage
	flushes  uint64
	requests uint64
	counted  bool // flushes are counted
	at       time.Time
	resident float64
}

func (s *daemonStand) meter() daemonMeter {
	m := daemonMeter{at: time.Now(), client: ownUsage(), requests: s.sqs.requests(), counted: s.flushes != nil}
	if s.process != nil {
		m.server, m.resident, m.flushes = s.process.threads(), s.process.resident(), s.flushes.total()
	}
	return m
}

// pace returns the pace of a run between two readings, in which the messages took elapsed.
func (m daemonMeter) pace(after daemonMeter, messages uint64, elapsed time.Duration) daemonPace {
	n := float64(max(messages, 1))
	server := after.server.since(m.server)
	pace := daemonPace{
		Rate:           float64(messages) / max(elapsed, 1).Seconds(),
		ServerCPU:      microseconds(server.processor) / n,
		ClientCPU:      microseconds(after.client.processor-m.client.processor) / n,
		ServerSwitches: float64(server.switches) / n,
		ClientSwitches: float64(after.client.switches-m.client.switches) / n,
		Requests:       float64(after.requests-m.requests) / n,
		Resident:       after.resident,
	}
	if after.counted {
		flushes := float64(after.flushes-m.flushes) / max(after.at.Sub(m.at), 1).Seconds()
		pace.Flushes = &flushes
	}
	return pace
}

func microseconds(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
