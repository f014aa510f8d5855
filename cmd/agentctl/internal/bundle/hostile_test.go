package bundle

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// A flag and its value in one word may have no equals sign.
func TestArgumentsOfOneWord(t *testing.T) {
	t.Parallel()
	args := []any{"--requirepass CANARY", "-aCANARY", "-pCANARY=x", "--password:CANARY", "-", "--", "--quiet", "-v"}
	cleanArguments(args)
	for i, a := range args {
		if strings.Contains(a.(string), "CANARY") {
			t.Errorf("%q is left", a)
		}
		if i >= 6 && strings.Contains(a.(string), leftOut) {
			t.Errorf("a flag without a value becomes %q", a)
		}
	}
}

// The files of a bundle are JSON and YAML, where a value may be escaped.
func TestRedactWhatIsEscaped(t *testing.T) {
	t.Parallel()
	value := `p"ss\w<rd&1`
	for _, html := range []bool{true, false} {
		var encoded bytes.Buffer
		encoder := json.NewEncoder(&encoded)
		encoder.SetEscapeHTML(html)
		if err := encoder.Encode(map[string]string{"error": "auth " + value + " refused"}); err != nil {
			t.Fatal(err)
		}
		if got := string(NewRedactor([][]byte{[]byte(value)}).Redact(encoded.Bytes())); !strings.Contains(got, leftOut) {
			t.Errorf("%s is left", got)
		}
	}
}

// The names of containers are an API server's words, and the archive is opened on someone else's machine.
func TestNamesStayInTheArchive(t *testing.T) {
	t.Parallel()
	a := newArchive(&bytes.Buffer{}, &Redactor{}, time.Unix(0, 0))
	for name, fine := range map[string]bool{
		"logs/pod/container.log": true, "logs/pod/../../../outside.log": false, "/absolute.log": false, "": false,
	} {
		if err := a.add(name, []byte("x")); (err == nil) != fine {
			t.Errorf("%q: %v", name, err)
		}
	}
}
