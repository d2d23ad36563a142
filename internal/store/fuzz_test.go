package store

import "testing"

// FuzzFiles parses small files and watermarks with arbitrary content. Parsed content is written
// back unchanged.
func FuzzFiles(f *testing.F) {
	f.Add(encodeChecked("mailbox store 1\n"))
	f.Add(watermark{log: 1, length: 2, crc: 3}.append(nil, storeID{1}))
	f.Add([]byte("check 00000000\ncheck 00000000\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if body, ok := decodeChecked(data); ok {
			if again, ok := decodeChecked(encodeChecked(body)); !ok || again != body {
				t.Errorf("%q is read as %q, and what that is written as, as %q", data, body, again)
			}
		}
		if len(data) >= watermarkBytes {
			var id storeID
			copy(id[:], data)
			mark, ok := parseWatermark(data[:watermarkBytes])
			if ok && string(mark.append(nil, id)) != string(data[:watermarkBytes]) {
				t.Errorf("%x is read as %+v", data, mark)
			}
		}
	})
}
