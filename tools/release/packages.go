package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb"
	nfpmfiles "github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

// packaged names where packages have the files of a build.
var packaged = map[string]string{
	"mailbox":                  "/usr/bin/mailbox",
	"mailboxd":                 "/usr/bin/mailboxd",
	"LICENSE":                  "/usr/share/doc/mailbox/copyright",
	"THIRD_PARTY_NOTICES":      "/usr/share/doc/mailbox/THIRD_PARTY_NOTICES",
	"README.md":                "/usr/share/doc/mailbox/README.md",
	"mailboxd.sample.toml":     "/etc/mailboxd/mailboxd.toml",
	"completions/mailbox.bash": "/usr/share/bash-completion/completions/mailbox",
	"completions/_mailbox":     "/usr/share/zsh/vendor-completions/_mailbox",
	"completions/mailbox.fish": "/usr/share/fish/vendor_completions.d/mailbox.fish",
	"man/mailbox.1":            "/usr/share/man/man1/mailbox.1",
	"man/mailboxd.8":           "/usr/share/man/man8/mailboxd.8",
	"mailboxd.service":         "/usr/lib/systemd/system/mailboxd.service",
	"mailbox.sysusers":         "/usr/lib/sysusers.d/mailbox.conf",
	"environment":              "/etc/mailboxd/environment",
}

// packages writes the deb and rpm of a build for Linux.
func (r *release) packages(b build) error {
	if b.system != "linux" {
		return nil
	}
	unit, err := os.ReadFile(filepath.Join(r.source, "deploy/systemd/mailboxd.service"))
	if err != nil {
		return err
	}
	files := slices.Concat(b.programs, b.others, []file{
		{"mailboxd.service", 0o644, []byte(strings.ReplaceAll(string(unit), "/usr/local/bin/", "/usr/bin/"))},
		{"mailbox.sysusers", 0o644, []byte("u mailbox - \"Mailbox daemon\" /var/lib/mailboxd\n")},
		{"environment", 0o600, []byte("MAILBOXD_CONFIG=/etc/mailboxd/mailboxd.toml\n")},
		{"postinstall", 0o755, []byte("#!/bin/sh\nset -e\nif command -v systemd-sysusers >/dev/null; then systemd-sysusers mailbox.conf; fi\nif [ -d /run/systemd/system ]; then systemctl daemon-reload; fi\n")},
	})
	dir := filepath.Join(r.work, "packages_"+b.arch)
	var contents nfpmfiles.Contents
	for _, f := range files {
		source := filepath.Join(dir, filepath.FromSlash(f.name))
		if err := os.MkdirAll(filepath.Dir(source), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(source, f.content, os.FileMode(f.mode)); err != nil {
			return err
		}
		if target, ok := packaged[f.name]; ok {
			c := &nfpmfiles.Content{Source: source, Destination: target, FileInfo: &nfpmfiles.ContentFileInfo{Owner: "root", Group: "root", Mode: os.FileMode(f.mode), MTime: r.date}}
			if strings.HasPrefix(target, "/etc/") {
				c.Type = nfpmfiles.TypeConfigNoReplace
			}
			contents = append(contents, c)
		}
	}
	for _, format := range []string{"deb", "rpm"} {
		if err := r.pack(format, b, contents, filepath.Join(dir, "postinstall")); err != nil {
			return err
		}
	}
	return nil
}

// pack writes one package.
func (r *release) pack(format string, b build, contents nfpmfiles.Contents, postinstall string) error {
	info := nfpm.WithDefaults(&nfpm.Info{
		Name: "mailbox", Version: r.version, Platform: b.system, Arch: b.arch, MTime: r.date, License: "Apache-2.0",
		Maintainer: "Mailbox <" + project + ">", Vendor: "Mailbox", Homepage: project, Section: "net",
		Description:     "Durable message queue: the daemon mailboxd and its command line",
		DisableGlobbing: true,
		Overridables: nfpm.Overridables{
			Contents: contents, Scripts: nfpm.Scripts{PostInstall: postinstall},
			RPM: nfpm.RPM{BuildHost: "mailbox", Compression: "gzip:6"}, Deb: nfpm.Deb{Compression: "gzip:6"},
		},
	})
	if err := nfpm.PrepareForPackager(info, format); err != nil {
		return err
	}
	packager, err := nfpm.Get(format)
	if err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(r.out, r.name(b.system+"_"+b.arch)+"."+format))
	if err != nil {
		return err
	}
	if err := packager.Package(info, f); err != nil {
		return err
	}
	return f.Close()
}
