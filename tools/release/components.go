package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/google/uuid"
)

// A component is one of the list of components, in the form of CycloneDX 1.6.
type component struct {
	Type       string     `json:"type"`
	Ref        string     `json:"bom-ref"`
	Name       string     `json:"name"`
	Version    string     `json:"version"`
	PackageURL string     `json:"purl,omitempty"`
	Hashes     []hash     `json:"hashes,omitempty"`
	Properties []property `json:"properties,omitempty"`
}

type hash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type dependency struct {
	Ref       string   `json:"ref"`
	DependsOn []string `json:"dependsOn"`
}

// components writes the list of components: every program with its sum, and the modules that
// its build information names.
func (r *release) components(builds []build) error {
	modules := make(map[string]component)
	var programs []component
	var dependencies []dependency
	for _, b := range builds {
		for _, p := range b.programs {
			info, err := buildinfo.Read(bytes.NewReader(p.content))
			if err != nil {
				return err
			}
			sum := sha256.Sum256(p.content)
			program := component{
				Type: "application", Ref: r.name(b.system+"_"+b.arch) + "/" + p.name, Name: p.name, Version: r.version, Hashes: []hash{{"SHA-256", hex.EncodeToString(sum[:])}},
				Properties: []property{{"platform", b.String()}},
			}
			standard := component{Type: "library", Ref: "pkg:golang/std@" + info.GoVersion, Name: "std", Version: info.GoVersion, PackageURL: "pkg:golang/std@" + info.GoVersion}
			modules[standard.Ref] = standard
			needs := dependency{program.Ref, []string{standard.Ref}}
			for _, m := range info.Deps {
				c := moduleComponent(m)
				modules[c.Ref] = c
				needs.DependsOn = append(needs.DependsOn, c.Ref)
			}
			programs, dependencies = append(programs, program), append(dependencies, needs)
		}
	}
	all := slices.Concat(programs, slices.SortedFunc(maps.Values(modules), func(a, b component) int { return strings.Compare(a.Ref, b.Ref) }))
	product := component{Type: "application", Ref: "mailbox", Name: "mailbox", Version: r.version, PackageURL: "pkg:golang/github.com/mailboxmq/mailbox@v" + r.version}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err := encoder.Encode(struct {
		Format       string         `json:"bomFormat"`
		Spec         string         `json:"specVersion"`
		Serial       string         `json:"serialNumber"`
		Version      int            `json:"version"`
		Metadata     map[string]any `json:"metadata"`
		Components   []component    `json:"components"`
		Dependencies []dependency   `json:"dependencies"`
	}{
		"CycloneDX", "1.6", uuid.NewSHA1(uuid.NameSpaceURL, []byte(project+"@"+r.version)).URN(), 1,
		map[string]any{"timestamp": r.date.Format("2006-01-02T15:04:05Z"), "component": product}, all, dependencies,
	})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.out, r.name("sbom.cdx.json")), text.Bytes(), 0o644)
}

// moduleComponent returns the component of a module. Its hash is the one of go.sum.
func moduleComponent(m *debug.Module) component {
	url := "pkg:golang/" + m.Path + "@" + m.Version
	c := component{Type: "library", Ref: url, Name: m.Path, Version: m.Version, PackageURL: url}
	if sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(m.Sum, "h1:")); err == nil && len(sum) == sha256.Size {
		c.Hashes = []hash{{"SHA-256", hex.EncodeToString(sum)}}
	}
	return c
}
