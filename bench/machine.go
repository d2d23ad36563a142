package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
)

// A machine is what a run was made on, as far as it bears on the figures.
type machine struct {
	Processor  string `json:"processor"`
	Cores      int    `json:"cores"`
	MemoryGiB  uint64 `json:"memory_gib"`
	Kernel     string `json:"kernel"`
	Filesystem string `json:"filesystem"`
	// Load is the load average of the last minute before the run.
	Load string `json:"load"`
}

func thisMachine(dir string) machine {
	return machine{
		Processor: processorName(), Cores: runtime.NumCPU(), MemoryGiB: (field("/proc/meminfo", "MemTotal:") + 1<<19) >> 20,
		Kernel: firstLine(os.ReadFile("/proc/sys/kernel/osrelease")), Filesystem: filesystem(dir),
		Load: strings.Join(append(fieldsOf("/proc/loadavg"), "unknown")[:1], ""),
	}
}

func firstLine(text []byte, err error) string {
	if err != nil {
		return "unknown"
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	return line
}

func processorName() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err == nil {
		for line := range strings.Lines(string(text)) {
			if name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "model name" {
				return strings.TrimSpace(value)
			}
		}
	}
	return runtime.GOARCH
}

// filesystem names the file system of a directory.
func filesystem(dir string) string {
	var info syscall.Statfs_t
	if syscall.Statfs(dir, &info) != nil {
		return "unknown"
	}
	switch info.Type {
	case 0xef53:
		return "ext4"
	case 0x58465342:
		return "xfs"
	case 0x9123683e:
		return "btrfs"
	case 0x01021994:
		return "tmpfs"
	case 0x794c7630:
		return "overlay"
	}
	return "other"
}

// serverVersions returns the versions of the peers, as far as they are installed, and of
// the modules that this program has.
func serverVersions() map[string]string {
	versions := map[string]string{"go": runtime.Version()}
	ask := func(name, binary string, arguments ...string) {
		if text, err := exec.Command(binary, arguments...).Output(); err == nil {
			versions[name] = firstLine(text, nil)
		}
	}
	ask("redis", "redis-server", "--version")
	ask("beanstalkd", "beanstalkd", "-v")
	if binary, err := postgresBinary("postgres"); err == nil {
		ask("postgres", binary, "--version")
	}
	if binary, err := rabbitmqServer(); err == nil {
		// .../rabbitmq_server-VERSION/sbin/rabbitmq-server
		versions["rabbitmq"] = strings.TrimPrefix(filepath.Base(filepath.Dir(filepath.Dir(binary))), "rabbitmq_server-")
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, module := range info.Deps {
			switch module.Path {
			case "github.com/nats-io/nats-server/v2", "github.com/nats-io/nats.go", "github.com/riverqueue/river", "github.com/rabbitmq/amqp091-go":
				versions[module.Path] = module.Version
			}
		}
	}
	return versions
}
