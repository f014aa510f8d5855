package manifests

import (
	"bytes"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// Template returns a template of Helm for objects of others as they are. A definition stays when the release
// goes, since all that it defines would go with it.
func Template(objects []*unstructured.Unstructured) ([]byte, error) {
	var out bytes.Buffer
	for _, o := range objects {
		if o.GetKind() == "CustomResourceDefinition" {
			o = o.DeepCopy()
			annotations := o.GetAnnotations()
			if annotations == nil {
				annotations = map[string]string{}
			}
			annotations["helm.sh/resource-policy"] = "keep"
			o.SetAnnotations(annotations)
		}
		raw, err := yaml.Marshal(o.Object)
		if err != nil {
			return nil, err
		}
		out.WriteString("---\n")
		// What looks like a template in the texts of others is none.
		out.Write(bytes.ReplaceAll(raw, []byte("{{"), []byte(`{{ "{{" }}`)))
	}
	return out.Bytes(), nil
}
