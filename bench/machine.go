package main

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
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
	// Priority is that of the run's session, where the system schedules by session.
	Priority string `json:"priority,omitempty"`
}

func thisMachine(dir string) machine {
	return machine{
		Processor: processorName(), Cores: runtime.NumCPU(), MemoryGiB: (field("/proc/meminfo", "MemTotal:") + 1<<19) >> 20,
		Kernel: firstLine(os.ReadFile("/proc/sys/kernel/osrelease")), Filesystem: filesystem(dir),
		Load:     strings.Join(append(fieldsOf("/proc/loadavg"), "unknown")[:1], ""),
		Priority: sessionPriority(),
	}
}

// sessionPriority returns the nice value of the session, unless it is the usual one.
func sessionPriority() string {
	words := fieldsOf("/proc/self/autogroup") // /autogroup-7 nice 0
	if len(words) != 3 || words[2] == "0" {
		return ""
	}
	return "nice " + words[2]
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

// serverVersions returns the versions of mailboxd and of the peers of a suite, as far as
// they are installed.
func serverVersions(suite string) map[string]string {
	versions := map[string]string{"Go": runtime.Version()}
	ask := func(name, binary string, arguments ...string) {
		if text, err := exec.Command(binary, arguments...).Output(); err == nil {
			versions[name] = versionIn(firstLine(text, nil))
		}
	}
	if text, err := exec.Command("git", "describe", "--always", "--dirty", "--exclude=*").Output(); err == nil {
		versions["Mailbox"] = firstLine(text, nil)
	}
	if suite == "sqs" || suite == "start" {
		if suite == "sqs" {
			versions["goaws"] = versionIn(goawsVersion)
		}
		ask("Node.js", "node", "--version")
		ask("fauxqs", "node", "-p", "require('"+filepath.ToSlash(fauxqsPackage)+"/package.json').version")
		return versions
	}
	ask("Redis", "redis-server", "--version")
	ask("beanstalkd", "beanstalkd", "-v")
	if binary, err := postgresBinary("postgres"); err == nil {
		ask("PostgreSQL", binary, "--version")
	}
	if binary, err := rabbitmqServer(); err == nil {
		versions["RabbitMQ"] = versionIn(binary)
	}
	for name, module := range map[string]string{"NATS": "github.com/nats-io/nats-server/v2", "River": "github.com/riverqueue/river"} {
		ask(name, "go", "list", "-m", "-f", "{{.Version}}", module)
	}
	return versions
}

var versionPattern = regexp.MustCompile(`\d+(\.\d+)+`)

// versionIn returns the first version in a text.
func versionIn(text string) string { return cmp.Or(versionPattern.FindString(text), text) }
