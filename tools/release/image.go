package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"encoding/pem"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// user is the user of the image, which is not root.
const user = 65532

// settings are the variables of the image. A container is reached from outside itself. Without
// certificates that is in plaintext, which its user must ask for: MAILBOXD_INSECURE_LISTEN, or
// MAILBOXD_TLS_CERT and MAILBOXD_TLS_KEY.
var settings = []string{"MAILBOXD_DATA_DIR=/var/lib/mailboxd", "MAILBOXD_LISTEN=0.0.0.0:9410", "MAILBOXD_LISTEN_OAP=0.0.0.0:9411"}

// forSQS are further variables of the variant for tests of programs that use Amazon SQS:
// messages in memory, and requests without credentials on LocalStack's port.
var forSQS = []string{
	"MAILBOXD_PROFILE=micronode", "MAILBOXD_INSECURE_LISTEN=true", "MAILBOXD_SQS_COMPATIBILITY=localstack", "MAILBOXD_SQS_UNSIGNED=true",
	"MAILBOXD_LISTEN_SQS=0.0.0.0:4566",
}

// A loadable is an image as docker load finds it.
type loadable struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// image writes the container image and its variant as a tar file with an OCI image layout,
// which docker load reads too.
func (r *release) image(builds []build) error {
	dir := filepath.Join(r.work, "image")
	images, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	var loadables []loadable
	layers := make(map[string]v1.Layer)
	for _, b := range builds {
		if b.system != "linux" {
			continue
		}
		if layers[b.arch], err = r.layer(b); err != nil {
			return err
		}
	}
	if len(layers) == 0 {
		return nil // the release has no build for Linux
	}
	for _, variant := range []struct {
		tag       string
		variables []string
	}{{r.version, nil}, {"sqs", forSQS}} {
		index := v1.ImageIndex(mutate.IndexMediaType(empty.Index, types.OCIImageIndex))
		for _, arch := range slices.Sorted(maps.Keys(layers)) {
			image, err := r.imageOf(arch, layers[arch], variant.variables)
			if err != nil {
				return err
			}
			index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}}})
			l, err := load(image, imageName+":"+variant.tag+"-"+arch)
			if err != nil {
				return err
			}
			loadables = append(loadables, l)
		}
		names := map[string]string{"org.opencontainers.image.ref.name": variant.tag, "io.containerd.image.name": imageName + ":" + variant.tag}
		if err := images.AppendIndex(index, layout.WithAnnotations(names)); err != nil {
			return err
		}
	}
	manifest, err := json.Marshal(loadables)
	if err != nil {
		return err
	}
	if err := images.WriteFile("manifest.json", manifest, 0o644); err != nil {
		return err
	}
	return r.packFolder(dir, r.name("image.tar"))
}

// load returns what docker load needs to find an image in a layout.
func load(image v1.Image, tag string) (loadable, error) {
	manifest, err := image.Manifest()
	if err != nil {
		return loadable{}, err
	}
	l := loadable{Config: "blobs/sha256/" + manifest.Config.Digest.Hex, RepoTags: []string{tag}}
	for _, layer := range manifest.Layers {
		l.Layers = append(l.Layers, "blobs/sha256/"+layer.Digest.Hex)
	}
	return l, nil
}

// layer returns the layer of the images of a build: both programs, their licences and the
// authorities of the public web, without a shell.
func (r *release) layer(b build) (v1.Layer, error) {
	content, err := r.imageFiles(b)
	if err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil }
	return tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
}

// imageOf returns the image of a layer, with further variables.
func (r *release) imageOf(arch string, layer v1.Layer, variables []string) (v1.Image, error) {
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.Append(base, mutate.Addendum{Layer: layer, MediaType: types.OCILayer, History: v1.History{Created: v1.Time{Time: r.date}, CreatedBy: "mailbox " + r.version}})
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config.OS, config.Architecture, config.Created = "linux", arch, v1.Time{Time: r.date}
	config.Config = v1.Config{
		User:         "65532:65532",
		Env:          append(append([]string{"PATH=/usr/local/bin"}, settings...), variables...),
		Entrypoint:   []string{"/usr/local/bin/mailboxd"},
		Volumes:      map[string]struct{}{"/var/lib/mailboxd": {}},
		ExposedPorts: map[string]struct{}{"9410/tcp": {}, "9411/tcp": {}},
		// The command line finds the daemon by the variables above. It asks whether the process
		// answers; whether it is ready is for load balancers (mailbox health --ready).
		Healthcheck: &v1.HealthConfig{
			Test: []string{"CMD", "/usr/local/bin/mailbox", "health"}, Interval: 10 * time.Second, Timeout: 5 * time.Second, StartPeriod: 30 * time.Second, Retries: 3,
		},
		Labels: map[string]string{
			"org.opencontainers.image.title": "mailboxd", "org.opencontainers.image.version": r.version, "org.opencontainers.image.licenses": "Apache-2.0", "org.opencontainers.image.source": project,
		},
	}
	if len(variables) > 0 {
		config.Config.ExposedPorts["4566/tcp"] = struct{}{}
	}
	return mutate.ConfigFile(image, config)
}

// imageFiles returns the files of an image as a tar file.
func (r *release) imageFiles(b build) ([]byte, error) {
	var authorities bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint != nil {
			continue // not trusted for everything, which a file cannot say
		}
		if err := pem.Encode(&authorities, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}); err != nil {
			return nil, err
		}
	}
	files := []file{{"etc/ssl/certs/ca-certificates.crt", 0o644, authorities.Bytes()}}
	for _, f := range b.programs {
		files = append(files, file{"usr/local/bin/" + f.name, 0o755, f.content})
	}
	for _, f := range b.others {
		if f.name == "LICENSE" || f.name == "THIRD_PARTY_NOTICES" {
			files = append(files, file{"usr/share/doc/mailbox/" + f.name, 0o644, f.content})
		}
	}
	var content bytes.Buffer
	archive := tar.NewWriter(&content)
	// A volume gets the owner of the directory that it is mounted on.
	data := &tar.Header{Typeflag: tar.TypeDir, Name: "var/lib/mailboxd/", Mode: 0o700, Uid: user, Gid: user, ModTime: r.date}
	if err := archive.WriteHeader(data); err != nil {
		return nil, err
	}
	if err := archive.Flush(); err != nil {
		return nil, err
	}
	err := packTar(&content, files, r.date) // ends the file
	return content.Bytes(), err
}

// packFolder writes a tar file with the files of a folder.
func (r *release) packFolder(dir, name string) error {
	var files []file
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(dir, path)
		files = append(files, file{filepath.ToSlash(relative), 0o644, content})
		return err
	})
	if err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(r.out, name))
	if err != nil {
		return err
	}
	if err := packTar(f, files, r.date); err != nil {
		return err
	}
	return f.Close()
}
