package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func TestNoticesFitTheModules(t *testing.T) {
	var want bytes.Buffer
	if err := write(&want); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(root(), "THIRD_PARTY_NOTICES"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want.Bytes()) {
		t.Error("THIRD_PARTY_NOTICES does not fit go.mod: run make notices")
	}
}
