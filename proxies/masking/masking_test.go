package masking_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argomesh/argomesh/proxies/masking"
	"github.com/argomesh/argomesh/test/heap"
)

var made = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

const most = 128 << 20

// full is a Secret that has its values wherever a Secret can have them.
func full(name string, values map[string][]byte) *corev1.Secret {
	s := &corev1.Secret{
		TypeMeta: metav1.TypeMeta{Kind: "Secret", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "web", UID: "u-1", ResourceVersion: "7", CreationTimestamp: metav1.NewTime(made),
			Labels: map[string]string{"app": "shop"}, Annotations: map[string]string{},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "shop", UID: "u-2"}},
			Finalizers:      []string{"example.com/hold"},
		},
		Type: corev1.SecretTypeOpaque, Data: values, StringData: map[string]string{},
	}
	for key, value := range values {
		s.StringData[key] = string(value)
		s.Annotations["note/"+key] = string(value)
	}
	applied, err := json.Marshal(s)
	if err != nil {
		panic(err) // of a value that is always JSON
	}
	s.Annotations[corev1.LastAppliedConfigAnnotation] = string(applied)
	s.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl", FieldsV1: metav1.NewFieldsV1(string(applied))}}
	return s
}

func encode(t testing.TB, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// read returns the outlines of an answer, after they have been sent.
func read(t testing.TB, text []byte, scope masking.Scope) *masking.Outlines {
	t.Helper()
	o, err := masking.Read(bytes.NewReader(text), scope)
	if err != nil {
		t.Fatalf("%v of %.200s", err, text)
	}
	sent, err := o.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	if o, err = masking.Parse(sent, scope); err != nil {
		t.Fatalf("%v of %.200s", err, sent)
	}
	return o
}

func render(t testing.TB, o *masking.Outlines, form masking.Form) []byte {
	t.Helper()
	body, length, err := o.Render(form, most, made.Add(90*time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = body.Close() }() // never fails
	text, err := io.ReadAll(body)
	if err != nil {
		t.Fatal(err)
	}
	if int64(len(text)) != length {
		t.Errorf("it says that it has %d bytes, and has %d", length, len(text))
	}
	return text
}

func forms() []masking.Form {
	return []masking.Form{masking.Plain, masking.Metadata, masking.Table, masking.BareTable, masking.FullTable}
}

// A Secret shows its keys and the sizes of its values to each client as that shows them.
func TestSecret(t *testing.T) {
	values := map[string][]byte{"empty": {}, "one": []byte("1"), "two": []byte("22"), "three": []byte("333"), "long": bytes.Repeat([]byte("v"), 10_000)}
	o := read(t, encode(t, full("shop", values)), masking.One)
	var got corev1.Secret
	if err := json.Unmarshal(render(t, o, masking.Plain), &got); err != nil {
		t.Fatal(err)
	}
	if got.Kind != "Secret" || got.Name != "shop" || got.UID != "u-1" || got.Type != corev1.SecretTypeOpaque || got.Labels["app"] != "shop" ||
		len(got.OwnerReferences) != 1 || len(got.Finalizers) != 1 || !got.CreationTimestamp.Equal(&metav1.Time{Time: made}) {
		t.Errorf("its metadata is %+v", got.ObjectMeta)
	}
	if len(got.Data) != len(values) {
		t.Errorf("%d keys", len(got.Data))
	}
	for key, value := range values {
		if want := strings.Repeat("*", len(value)); string(got.Data[key]) != want {
			t.Errorf("%s is %.40q, want %.40q", key, got.Data[key], want)
		}
		if got.Annotations["note/"+key] != "masked" {
			t.Errorf("annotation note/%s is %q", key, got.Annotations["note/"+key])
		}
	}
	if _, found := got.Annotations[corev1.LastAppliedConfigAnnotation]; found || len(got.ManagedFields) > 0 || len(got.StringData) > 0 {
		t.Error("there is more than keys and sizes")
	}
	if want := "empty: 0 bytes, long: 10000 bytes, one: 1 bytes, three: 3 bytes, two: 2 bytes"; got.Annotations[masking.Annotation] != want {
		t.Errorf("it tells %q, want %q", got.Annotations[masking.Annotation], want)
	}
}

func TestTables(t *testing.T) {
	list := corev1.SecretList{TypeMeta: metav1.TypeMeta{Kind: "SecretList", APIVersion: "v1"}}
	list.ResourceVersion, list.Continue = "9", "further"
	for _, name := range []string{"a", "b"} {
		one := *full(name, map[string][]byte{"k": []byte("v")})
		one.TypeMeta = metav1.TypeMeta{}
		list.Items = append(list.Items, one)
	}
	o := read(t, encode(t, list), masking.List)
	for form, kind := range map[masking.Form]string{masking.Table: "PartialObjectMetadata", masking.FullTable: "Secret", masking.BareTable: ""} {
		var table metav1.Table
		if err := json.Unmarshal(render(t, o, form), &table); err != nil {
			t.Fatal(err)
		}
		if len(table.Rows) != 2 || table.Continue != "further" || table.ResourceVersion != "9" || len(table.ColumnDefinitions) != 4 {
			t.Fatalf("form %d: %+v", form, table)
		}
		if got := fmt.Sprint(table.Rows[1].Cells); got != "[b Opaque 1 90m]" {
			t.Errorf("form %d: the row is %s", form, got)
		}
		var object metav1.PartialObjectMetadata
		if raw := table.Rows[1].Object.Raw; len(raw) > 0 {
			if err := json.Unmarshal(raw, &object); err != nil {
				t.Fatal(err)
			}
		}
		if object.Kind != kind {
			t.Errorf("form %d: the row has a %q, want a %q", form, object.Kind, kind)
		}
	}
	var plain corev1.SecretList
	if err := json.Unmarshal(render(t, o, masking.Plain), &plain); err != nil || len(plain.Items) != 2 || plain.Kind != "SecretList" || plain.Continue != "further" {
		t.Errorf("the list is %+v: %v", plain, err)
	}
	var metadata metav1.PartialObjectMetadataList
	if err := json.Unmarshal(render(t, o, masking.Metadata), &metadata); err != nil || len(metadata.Items) != 2 || metadata.Items[0].Name != "a" {
		t.Errorf("the metadata is %+v: %v", metadata, err)
	}
	empty := read(t, []byte(`{"kind":"SecretList","apiVersion":"v1","metadata":{},"items":null}`), masking.List)
	for _, form := range forms() {
		if text := render(t, empty, form); !json.Valid(text) {
			t.Errorf("form %d of nothing is %s", form, text)
		}
	}
}

// What is masked twice is as it was.
func TestMaskedTwice(t *testing.T) {
	once := render(t, read(t, encode(t, full("shop", map[string][]byte{"a": []byte("12345"), "b": {}})), masking.One), masking.Plain)
	if twice := render(t, read(t, once, masking.One), masking.Plain); !bytes.Equal(once, twice) {
		t.Errorf("once  %s\ntwice %s", once, twice)
	}
}

// Whatever is no Secret in the one form that is asked for is refused, and the refusal
// quotes nothing of it.
func TestRefused(t *testing.T) {
	const value = "aHVudGVyMg=="
	head := `"kind":"Secret","apiVersion":"v1","metadata":{"name":"a"}`
	for name, tt := range map[string]struct {
		scope masking.Scope
		text  string
		want  error
	}{
		"another kind":              {masking.One, `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"},"data":{"a":"` + value + `"}}`, masking.ErrNoSecrets},
		"another version":           {masking.One, `{"kind":"Secret","apiVersion":"x/v1","metadata":{"name":"a"}}`, masking.ErrNoSecrets},
		"a List":                    {masking.List, `{"kind":"List","apiVersion":"v1","metadata":{},"items":[{` + head + `,"data":{"a":"` + value + `"}}]}`, masking.ErrNoSecrets},
		"a Table":                   {masking.List, `{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{},"rows":[]}`, masking.ErrNoSecrets},
		"a Status":                  {masking.One, `{"kind":"Status","apiVersion":"v1","message":"` + value + `"}`, masking.ErrNoSecrets},
		"a list for one":            {masking.One, `{"kind":"SecretList","apiVersion":"v1","metadata":{},"items":[]}`, masking.ErrNoSecrets},
		"one for a list":            {masking.List, `{` + head + `}`, masking.ErrNoSecrets},
		"a list within a list":      {masking.List, `{"kind":"SecretList","apiVersion":"v1","items":[{"kind":"SecretList","apiVersion":"v1","items":[]}]}`, masking.ErrNoSecrets},
		"a ConfigMap within a list": {masking.List, `{"kind":"SecretList","apiVersion":"v1","items":[{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"}}]}`, masking.ErrNoSecrets},
		"no name":                   {masking.One, `{"kind":"Secret","apiVersion":"v1","metadata":{}}`, masking.ErrNoSecrets},
		"data that is a text":       {masking.One, `{` + head + `,"data":"` + value + `"}`, masking.ErrNoSecrets},
		"data that is a list":       {masking.One, `{` + head + `,"data":["` + value + `"]}`, masking.ErrNoSecrets},
		"a value that is an object": {masking.One, `{` + head + `,"data":{"a":{"b":"` + value + `"}}}`, masking.ErrNoSecrets},
		"a value that is a number":  {masking.One, `{` + head + `,"data":{"a":123456}}`, masking.ErrNoSecrets},
		"a value without base64":    {masking.One, `{` + head + `,"data":{"a":"hunter2!"}}`, masking.ErrNoSecrets},
		"a value that is cut":       {masking.One, `{` + head + `,"data":{"a":"aHVud"}}`, masking.ErrNoSecrets},
		"padding in the middle":     {masking.One, `{` + head + `,"data":{"a":"aH==aHVu"}}`, masking.ErrNoSecrets},
		"more than one":             {masking.One, `{` + head + `}{` + head + `}`, masking.ErrNoSecrets},
		"something behind a list":   {masking.List, `{"kind":"SecretList","apiVersion":"v1","items":[]} "` + value + `"`, masking.ErrNoSecrets},
		"another field of a list":   {masking.List, `{"kind":"SecretList","apiVersion":"v1","items":[],"` + value + `":1}`, masking.ErrNoSecrets},
		"nothing":                   {masking.One, ``, masking.ErrNoSecrets},
		"the begin of a list":       {masking.List, `{"kind":"SecretList","apiVersion":"v1","items":[`, masking.ErrNoSecrets},
		"protobuf":                  {masking.One, "k8s\x00\n\x0c\n\x02v1\x12\x06Secret", masking.ErrNoSecrets},
		"very deep":                 {masking.One, `{` + head + `,"x":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}`, masking.ErrTooMuch},
		"longer than any":           {masking.One, `{` + head + `,"x":"` + strings.Repeat("a", masking.MaxSecret) + `"}`, masking.ErrTooMuch},
		"a long one in a list":      {masking.List, `{"kind":"SecretList","apiVersion":"v1","items":[{` + head + `},{"x":"` + strings.Repeat("a", 2*masking.MaxSecret) + `"}]}`, masking.ErrTooMuch},
		"values longer than any":    {masking.One, `{` + head + `,"data":{"a":"` + strings.Repeat("AAAA", corev1.MaxSecretSize/3+1) + `"}}`, masking.ErrNoSecrets},
	} {
		o, err := masking.Read(strings.NewReader(tt.text), tt.scope)
		if !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
		if err != nil && strings.Contains(err.Error(), value) {
			t.Errorf("%s: the refusal quotes: %v", name, err)
		}
		if err == nil {
			t.Errorf("%s: %s", name, render(t, o, masking.Plain))
		}
	}
	broken := errors.New("the connection broke")
	if _, err := masking.Read(io.MultiReader(strings.NewReader(`{"kind":"SecretList","items":[`), failing{broken}), masking.List); !errors.Is(err, broken) {
		t.Errorf("an answer that broke off: %v", err)
	}
}

type failing struct{ error }

func (f failing) Read([]byte) (int, error) { return 0, f.error }

// A hub reads outlines, and nothing that could have a value.
func TestParseRefusesSecrets(t *testing.T) {
	secret := encode(t, full("a", map[string][]byte{"k": []byte("hunter2")}))
	for name, tt := range map[string]struct {
		scope masking.Scope
		text  string
	}{
		"a Secret":              {masking.One, string(secret) + "\n"},
		"a list":                {masking.List, `{"kind":"SecretList","apiVersion":"v1","metadata":{},"items":[` + string(secret) + `]}` + "\n"},
		"a Secret in a list":    {masking.List, "{}\n" + string(secret) + "\n"},
		"an outline with data":  {masking.One, `{"name":"a","data":{"k":"aHVudGVyMg=="}}` + "\n"},
		"a size that is a text": {masking.One, `{"name":"a","sizes":{"k":"aHVudGVyMg=="}}` + "\n"},
		"annotations as a map":  {masking.One, `{"name":"a","annotations":{"k":"hunter2"}}` + "\n"},
		"a size below nothing":  {masking.One, `{"name":"a","sizes":{"k":-1}}` + "\n"},
		"a size beyond any":     {masking.One, `{"name":"a","sizes":{"k":1048577}}` + "\n"},
		"sizes beyond any":      {masking.One, `{"name":"a","sizes":{"k":1048576,"l":1}}` + "\n"},
		"two for one":           {masking.One, `{"name":"a"}` + "\n" + `{"name":"b"}` + "\n"},
		"none for one":          {masking.One, ""},
		"a line that is cut":    {masking.List, "{}\n" + `{"name":"a"}`},
		"too many":              {masking.List, "{}\n" + strings.Repeat(`{"name":"a"}`+"\n", masking.MaxSecrets+1)},
		"too long":              {masking.One, `{"name":"` + strings.Repeat("a", masking.MaxOutline) + `"}` + "\n"},
	} {
		if _, err := masking.Parse([]byte(tt.text), tt.scope); err == nil {
			t.Errorf("%s is read", name)
		}
	}
}

// Each limit holds, and what is at it passes.
func TestLimits(t *testing.T) {
	list := func(n int) []byte {
		var b bytes.Buffer
		b.WriteString(`{"kind":"SecretList","apiVersion":"v1","metadata":{},"items":[`)
		for i := range n {
			if i > 0 {
				b.WriteString(",")
			}
			fmt.Fprintf(&b, `{"metadata":{"name":"s%d"}}`, i)
		}
		b.WriteString("]}")
		return b.Bytes()
	}
	read(t, list(masking.MaxSecrets), masking.List)
	if _, err := masking.Read(bytes.NewReader(list(masking.MaxSecrets+1)), masking.List); !errors.Is(err, masking.ErrTooMuch) {
		t.Errorf("one too many: %v", err)
	}
	o := read(t, encode(t, full("a", map[string][]byte{"k": bytes.Repeat([]byte("v"), 300_000)})), masking.One)
	length := int64(len(render(t, o, masking.Plain)))
	if body, _, err := o.Render(masking.Plain, length, made); err != nil {
		t.Errorf("at the limit: %v", err)
	} else {
		_ = body.Close() // never fails
	}
	if _, _, err := o.Render(masking.Plain, length-1, made); !errors.Is(err, masking.ErrTooMuch) {
		t.Errorf("beyond the limit: %v", err)
	}
	labels := fmt.Sprintf(`,"metadata":{"name":"a","labels":{"a":%q}}`, strings.Repeat("a", masking.MaxOutline))
	if _, err := masking.Read(strings.NewReader(`{"kind":"Secret","apiVersion":"v1"`+labels+`}`), masking.One); !errors.Is(err, masking.ErrTooMuch) {
		t.Errorf("a long outline: %v", err)
	}
}

// What is read takes no more than some times as much of the heap, and a long list takes
// what one of its Secrets does.
func TestHeap(t *testing.T) {
	one := full("a", map[string][]byte{"k": bytes.Repeat([]byte("v"), 400_000)})
	one.Annotations, one.StringData, one.ManagedFields = nil, nil, nil
	text := encode(t, one)
	heap.Bound(t, len(text), func() { _ = read(t, text, masking.One) })
	const items = 100
	list := bytes.NewBufferString(`{"kind":"SecretList","apiVersion":"v1","metadata":{},"items":[`)
	list.Write(text)
	for range items - 1 {
		list.WriteString(",")
		list.Write(text)
	}
	list.WriteString("]}")
	length := list.Len()
	took := heap.Of(func() {
		o, err := masking.Read(list, masking.List)
		if err != nil {
			t.Fatal(err)
		}
		body, _, err := o.Render(masking.Plain, most, made)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := io.Copy(io.Discard, body); err != nil || n < int64(items*400_000) {
			t.Errorf("%d bytes: %v", n, err)
		}
	})
	if took > uint64(3*length) { // all of it, of which one at a time is held
		t.Errorf("a list of %d bytes takes %d of heap", length, took)
	}
	// Short words for much.
	for name, line := range map[string]string{
		"long values that are not there": `{"name":"a","sizes":{"k":1048576}}` + "\n",
		"nothing":                        `{"name":"a"}` + "\n",
	} {
		text := []byte("{}\n" + strings.Repeat(line, 90))
		if took := heap.Of(func() {
			o, err := masking.Parse(text, masking.List)
			if err != nil {
				t.Fatal(err)
			}
			body, _, err := o.Render(masking.Plain, most, made)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, body) // it was rendered before
		}); took > 4<<20 {
			t.Errorf("%s: %d bytes take %d of heap", name, len(text), took)
		}
	}
}

func TestFormOf(t *testing.T) {
	for accept, want := range map[string]masking.Form{
		"":                 masking.Plain,
		"application/json": masking.Plain,
		"*/*":              masking.Plain,
		"application/vnd.kubernetes.protobuf,application/json":                                                                                                     masking.Plain,
		"application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json":                                          masking.Table,
		"application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json":                                                                                       masking.Plain,
		"application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,*/*": masking.Metadata,
		"application/json;as=Secret;v=v1;g=meta.k8s.io":                                                                                                            masking.NoForm,
		"application/json;as=Table;v=v1;g=example.com":                                                                                                             masking.NoForm,
		"application/vnd.kubernetes.protobuf":                                                                                                                      masking.NoForm,
		"application/yaml":                                                                                                                                         masking.NoForm,
		"application/cbor":                                                                                                                                         masking.NoForm,
		";;;":                                                                                                                                                      masking.NoForm,
		masking.MediaType:                                                                                                                                          masking.Outlined,
	} {
		if got := masking.FormOf([]string{accept}, ""); got != want {
			t.Errorf("%q is form %d, want %d", accept, got, want)
		}
	}
	table := []string{"application/json;as=Table;v=v1;g=meta.k8s.io"}
	if a, b := masking.FormOf(table, "None"), masking.FormOf(table, "Object"); a != masking.BareTable || b != masking.FullTable {
		t.Errorf("includeObject is read as %d and %d", a, b)
	}
}

// FuzzMasked holds that what is told of a Secret does not depend on its values, but on how
// long they are, and has none of them.
func FuzzMasked(f *testing.F) {
	f.Add([]byte("hunter2"), []byte("correct horse"), "password", "DATA", `"`)
	f.Add([]byte("{\"a\":\"b\"}"), []byte("\xff\xfe\x00\x01"), "Data", "d\\u0061ta", "\\u0064ata")
	f.Add([]byte("masked"), []byte("****"), "stringData", "stringData", "metadata")
	f.Fuzz(func(t *testing.T, one, two []byte, key, beside, within string) {
		if len(one) < 4 || len(two) < 4 || len(one)+len(two) > 64<<10 || !plainKey(beside) || !plainKey(within) {
			t.Skip()
		}
		text := func(one, two []byte) []byte {
			s := full("a", map[string][]byte{key: one, "k2": two})
			head, err := json.Marshal(s)
			if err != nil {
				t.Fatal(err)
			}
			// Fields that no API server has, written as they came: in other cases, with escapes, a second time.
			more := fmt.Sprintf(`,"%s":%s,"%s":%s}`, beside, quoted(one), "X"+within, quoted(two))
			return append(head[:len(head)-1], more...)
		}
		secret := text(one, two)
		o, err := masking.Read(bytes.NewReader(secret), masking.One)
		if err != nil {
			return // nothing is told
		}
		other := read(t, text(bytes.Repeat([]byte("#"), len(one)), bytes.Repeat([]byte("#"), len(two))), masking.One)
		list := read(t, fmt.Appendf(nil, `{"items":[%s],"kind":"SecretList","apiVersion":"v1"}`, secret), masking.List)
		for _, form := range forms() {
			got, same := render(t, o, form), render(t, other, form)
			if !bytes.Equal(got, same) {
				t.Fatalf("form %d tells values apart:\n%s\n%s", form, got, same)
			}
			for _, value := range [][]byte{one, two, quoted(one), quoted(two), []byte(base64.StdEncoding.EncodeToString(one)), []byte(base64.StdEncoding.EncodeToString(two))} {
				if bytes.Contains(got, value) && !bytes.Contains(same, value) {
					t.Fatalf("form %d has %q:\n%s", form, value, got)
				}
			}
			render(t, list, form)
		}
	})
}

// plainKey reports whether text is the inside of a JSON string that is no field of a Secret
// which is shown.
func plainKey(text string) bool {
	var key string
	if json.Unmarshal([]byte(`"`+text+`"`), &key) != nil {
		return false
	}
	return key != "type" && key != "kind" && key != "apiVersion"
}

// quoted is a value as JSON.
func quoted(value []byte) []byte {
	text, _ := json.Marshal(string(value)) // never fails
	return text
}

// FuzzParse holds that whatever a spoke sends is bounded, and is refused or rendered.
func FuzzParse(f *testing.F) {
	f.Add([]byte("{}\n{\"name\":\"a\",\"sizes\":{\"k\":3},\"annotations\":[\"b\"]}\n"), true)
	f.Add([]byte("{\"name\":\"a\",\"created\":\"2026-03-01T12:00:00Z\"}\n"), false)
	f.Fuzz(func(t *testing.T, text []byte, list bool) {
		if len(text) > 4<<10 {
			t.Skip()
		}
		o, err := masking.Parse(text, masking.Scope(list))
		if err != nil {
			return
		}
		for _, form := range forms() {
			if body, _, err := o.Render(form, 1<<20, made); err == nil {
				got, err := io.ReadAll(body)
				if err != nil || !json.Valid(got) {
					t.Fatalf("form %d of %q: %q, %v", form, text, got, err)
				}
				_ = body.Close() // never fails
			}
		}
	})
}
