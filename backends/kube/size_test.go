package kube

import (
	"encoding/json"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argomesh/argomesh/stream"
)

// What an object has in etcd is its content and its managedFields, of which the Store
// keeps only the size.
func TestSizeIsThatOfTheWholeObject(t *testing.T) {
	for name, managed := range map[string]string{
		"without managedFields": "",
		"with managedFields": `,"managedFields":[{"apiVersion":"argoproj.io/v1alpha1","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:annotations":` +
			`{".":{},"f:argomesh.io/source":{}}},"f:spec":{"f:project":{},"f:source":{"f:path":{},"f:repoURL":{}}}},"manager":"argomesh","operation":"Update",` +
			`"time":"2026-01-01T00:00:00Z"},{"manager":"kubectl","operation":"Apply","subresource":"status"}]`,
	} {
		t.Run(name, func(t *testing.T) {
			whole := `{"apiVersion":"argoproj.io/v1alpha1","kind":"Application","metadata":{"name":"a","namespace":"b"` + managed + `},"spec":{"project":"default"}}`
			u := &unstructured.Unstructured{}
			if err := json.Unmarshal([]byte(whole), u); err != nil {
				t.Fatal(err)
			}
			o, err := newObject(stream.Application, u)
			if err != nil {
				t.Fatal(err)
			}
			if off := o.Size() - len(whole); off < -len(whole)/10 || off > len(whole)/10 {
				t.Errorf("Size() = %d, want about %d", o.Size(), len(whole))
			}
		})
	}
}
