package main

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// archive writes the archive of a build: a zip file for Windows, else a compressed tar file.
// Its files are in one folder.
func (r *release) archive(b build) error {
	folder := r.name(b.system + "_" + b.arch)
	var files []file
	for _, f := range slices.Concat(b.programs, b.others) {
		f.name = folder + "/" + f.name
		files = append(files, f)
	}
	pack, ending := packTarGzip, ".tar.gz"
	if b.system == "windows" {
		pack, ending = packZip, ".zip"
	}
	archive, err := os.Create(filepath.Join(r.out, folder+ending))
	if err != nil {
		return err
	}
	if err := pack(archive, files, r.date); err != nil {
		return err
	}
	return archive.Close()
}

func packTarGzip(w io.Writer, files []file, date time.Time) error {
	compressed := gzip.NewWriter(w)
	if err := packTar(compressed, files, date); err != nil {
		return err
	}
	return compressed.Close()
}

func packTar(w io.Writer, files []file, date time.Time) error {
	archive := tar.NewWriter(w)
	for _, f := range files {
		h := &tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.content)), ModTime: date, Format: tar.FormatPAX}
		if err := archive.WriteHeader(h); err != nil {
			return err
		}
		if _, err := archive.Write(f.content); err != nil {
			return err
		}
	}
	return archive.Close()
}

func packZip(w io.Writer, files []file, date time.Time) error {
	archive := zip.NewWriter(w)
	for _, f := range files {
		h := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: date}
		h.SetMode(os.FileMode(f.mode))
		entry, err := archive.CreateHeader(h)
		if err != nil {
			return err
		}
		if _, err := entry.Write(f.content); err != nil {
			return err
		}
	}
	return archive.Close()
}
