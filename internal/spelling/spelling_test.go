package spelling

import "testing"

func TestNearestFindsTypingErrorsAndNothingElse(t *testing.T) {
	candidates := []string{"send", "recv", "stats", "queues", "ls", "delay"}
	for word, want := range map[string]string{
		"sned": "send", "snd": "send", "sendd": "send", "stat": "stats", "que": "queues", "lst": "ls", "dely": "delay", "deLay": "delay",
		"": "", "x": "", "zz": "", "nothing": "", "sent-mail": "",
	} {
		if got := Nearest(word, candidates); got != want {
			t.Errorf("nearest to %q is %q, want %q", word, got, want)
		}
	}
}
