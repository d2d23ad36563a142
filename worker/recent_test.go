package worker

import "testing"

func TestForgottenIDIsRememberedFullyWhenPutAgain(t *testing.T) {
	r := newRecent[int](3)
	r.put("a", 1)
	r.forget("a")
	r.put("a", 2)
	r.put("b", 3)
	r.put("c", 4) // takes the place of the first a
	for id, want := range map[string]int{"a": 2, "b": 3, "c": 4} {
		if got, ok := r.get(id); !ok || got != want {
			t.Errorf("%s is %d, %v, want %d", id, got, ok, want)
		}
	}
	r.put("d", 5)
	if _, ok := r.get("a"); ok {
		t.Error("there are more than three")
	}
	if len(r.values) != 3 || r.count.Load() != 3 {
		t.Errorf("there are %d, and %d are counted", len(r.values), r.count.Load())
	}
}
