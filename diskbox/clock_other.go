//go:build !linux

package diskbox

import "time"

var started = time.Now()

func (kernelClock) boot() string { return "" }

func (kernelClock) uptime() time.Duration { return time.Since(started) }
