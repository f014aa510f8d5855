package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

func TestRedact(t *testing.T) {
	r := NewRedactor([][]byte{[]byte("s3cr3t-value\n"), []byte("s3cr3t"), []byte("short"),
		[]byte("line one of a file\nline two of a file\n")})
	key := "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEE\n-----END EC PRIVATE KEY-----"
	for name, c := range map[string]struct{ text, want string }{
		"nothing":                {"agent edge-1 connected", "agent edge-1 connected"},
		"a value":                {"redis said s3cr3t-value!", "redis said (left out)!"},
		"a value within another": {"s3cr3t-values3cr3t", "(left out)(left out)"},
		"a value in base64":      {base64.StdEncoding.EncodeToString([]byte("s3cr3t-value")), "(left out)"},
		"what is too short":      {"a short word", "a short word"},
		"a line of a file":       {"at line two of a file", "at (left out)"},
		"a token": {`token "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0.c2ln" expired`,
			`token "(left out)" expired`},
		"a key":                      {"pem " + key + " end", "pem (left out) end"},
		"a key in JSON":              {strings.ReplaceAll(key, "\n", `\n`), "(left out)"},
		"a key that was cut off":     {key[:40], "(left out)"},
		"a password of a URL":        {"GET https://user:pw@git.example/r.git", "GET https://(left out)@git.example/r.git"},
		"a URL":                      {"GET https://git.example/r.git?a@b", "GET https://git.example/r.git?a@b"},
		"a header":                   {"Authorization: Bearer abcdefgh.ij", "Authorization: Bearer (left out)"},
		"a header in JSON":           {`{"authorization":"Basic dXNlcjpwdw=="}`, `{"authorization":"Basic (left out)"}`},
		"a bearer":                   {"sent bearer abcdefgh1234", "sent bearer (left out)"},
		"a password":                 {"password=hunter2 user=a", "password=(left out) user=a"},
		"a password in JSON":         {`{"redis_password":"hunter2","x":1}`, `{"redis_password":"(left out)","x":1}`},
		"an API key":                 {"X-Api-Key: 12345", "X-Api-Key: (left out)"},
		"a file with a password":     {"password_file: /redis/auth", "password_file: /redis/auth"},
		"a Secret by its name":       {"secret argocd-redis is not there", "secret argocd-redis is not there"},
		"a SPIFFE ID":                {"spiffe://hub.example/argomesh/principal", "spiffe://hub.example/argomesh/principal"},
		"an address and a SPIFFE ID": {"dial spiffe://a.example/x via b@c", "dial spiffe://a.example/x via b@c"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := string(r.Redact([]byte(c.text))); got != c.want {
				t.Errorf("Redact(%q) = %q, want %q", c.text, got, c.want)
			}
		})
	}
}

func FuzzRedact(f *testing.F) {
	f.Add([]byte("a s3cr3t-value b"), []byte("s3cr3t-value"))
	f.Add([]byte("-----BEGIN PRIVATE KEY-----"), []byte("PRIVATE"))
	f.Fuzz(func(t *testing.T, text, value []byte) {
		value = bytes.TrimSpace(value)
		got := NewRedactor([][]byte{value}).Redact(text)
		if len(value) >= shortest && !bytes.Contains([]byte(leftOut), value) && !bytes.Contains(value, []byte("left")) &&
			bytes.Contains(got, value) {
			t.Errorf("Redact(%q) = %q, which has %q", text, got, value)
		}
	})
}

func TestClean(t *testing.T) {
	object := func(text string) *unstructured.Unstructured {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
			t.Fatal(err)
		}
		return o
	}
	got := Clean(object(`
kind: Deployment
metadata:
  name: d
  annotations: {note: CANARY, deployment.kubernetes.io/revision: "3"}
  managedFields: [{manager: CANARY}]
spec:
  template:
    metadata: {annotations: {a: CANARY}, labels: {b: c}}
    spec:
      initContainers: [{name: i, command: [sh, CANARY], args: [--x, CANARY]}]
      containers:
        - name: c
          image: registry.example/c:1
          args: [--config=/etc/c.yaml, --password=CANARY, --token, CANARY, --concurrency, "2", CANARY]
          env:
            - {name: A, value: CANARY}
            - {name: B, valueFrom: {secretKeyRef: {name: s, key: k}}}
`))
	want := object(`
kind: Deployment
metadata:
  name: d
  annotations: {note: (left out), deployment.kubernetes.io/revision: "3"}
spec:
  template:
    metadata: {annotations: {a: (left out)}, labels: {b: c}}
    spec:
      initContainers: [{name: i, command: [(left out), (left out)], args: [--x, (left out)]}]
      containers:
        - name: c
          image: registry.example/c:1
          args: [--config=/etc/c.yaml, --password=(left out), --token, (left out), --concurrency, "2", (left out)]
          env:
            - {name: A, value: (left out)}
            - {name: B, valueFrom: {secretKeyRef: {name: s, key: k}}}
`)
	if diff := cmp.Diff(want.Object, got.Object); diff != "" {
		t.Errorf("Clean() (-want +got):\n%s", diff)
	}
	if Clean(object("{kind: Secret, data: {a: CANARY}}")) != nil {
		t.Error("a Secret passes")
	}
	if diff := cmp.Diff(any(map[string]any{"a": []any{leftOut}, "b": map[string]any{"c": leftOut}}),
		keysOf(map[string]any{"a": []any{"CANARY"}, "b": map[string]any{"c": 1.0}})); diff != "" {
		t.Errorf("keysOf() (-want +got):\n%s", diff)
	}
}

// An archive stays within its limit, whatever is put into it, and says what is not in it.
func TestArchiveIsFull(t *testing.T) {
	var out bytes.Buffer
	a := newArchive(&out, &Redactor{}, time.Unix(0, 0))
	if a.limit != maxArchive {
		t.Errorf("the limit is %d, want %d", a.limit, maxArchive)
	}
	a.limit = 5 << 20 // noise takes long
	noise := make([]byte, maxFile+1000)
	source := rand.NewChaCha8([32]byte{})
	if _, err := source.Read(noise); err != nil {
		t.Fatal(err)
	}
	files := 0
	for {
		err := a.add("noise", noise)
		if errors.Is(err, errFull) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if files++; files > 5 {
			t.Fatal("it takes whatever comes")
		}
	}
	if err := errors.Join(a.last("problems.txt", []byte("noise: full\n")), a.close()); err != nil {
		t.Fatal(err)
	}
	if out.Len() > int(a.limit) || files < 2 {
		t.Errorf("%d files took %d bytes, the limit is %d", files, out.Len(), a.limit)
	}
	unzipped, err := gzip.NewReader(&out)
	if err != nil {
		t.Fatal(err)
	}
	var last string
	for reader := tar.NewReader(unzipped); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		last = header.Name
	}
	if last != "problems.txt" {
		t.Errorf("the last file is %s", last)
	}
}
