import ca.uhn.fhir.context.FhirContext;
import ca.uhn.fhir.context.support.DefaultProfileValidationSupport;
import ca.uhn.fhir.validation.FhirValidator;
import ca.uhn.fhir.validation.SingleValidationMessage;
import ca.uhn.fhir.validation.ValidationOptions;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import org.hl7.fhir.common.hapi.validation.support.CommonCodeSystemsTerminologyService;
import org.hl7.fhir.common.hapi.validation.support.InMemoryTerminologyServerValidationSupport;
import org.hl7.fhir.common.hapi.validation.support.ValidationSupportChain;
import org.hl7.fhir.common.hapi.validation.validator.FhirInstanceValidator;

/**
 * Reads FHIR resources, one a line, and says of each what is wrong with it: its line, how bad, which
 * rule, where, and in words. What LOINC codes make a vital sign is held against that profile, too.
 */
public final class Judge {
    /** The profiles of vital signs (FHIR R4, "Vital Signs"), by the code that asks for them. */
    private static final Map<String, String> VITAL_SIGNS = Map.of(
            "8867-4", "heartrate", "2708-6", "oxygensat", "8310-5", "bodytemp",
            "29463-7", "bodyweight", "8302-2", "bodyheight", "39156-5", "bmi", "85354-9", "bp");

    public static void main(String[] arguments) throws Exception {
        FhirContext context = FhirContext.forR4();
        FhirValidator validator = context.newValidator();
        validator.registerValidatorModule(new FhirInstanceValidator(new ValidationSupportChain(
                new DefaultProfileValidationSupport(context),
                new CommonCodeSystemsTerminologyService(context),
                new InMemoryTerminologyServerValidationSupport(context))));
        int count = 0;
        for (String line : Files.readAllLines(Path.of(arguments[0]))) {
            ValidationOptions options = new ValidationOptions();
            VITAL_SIGNS.forEach((code, name) -> {
                if (line.contains("\"code\":\"" + code + "\"")) {
                    options.addProfile("http://hl7.org/fhir/StructureDefinition/" + name);
                }
            });
            for (SingleValidationMessage it : validator.validateWithResult(line, options).getMessages()) {
                System.out.println(String.join("\t", "said", Integer.toString(count),
                        it.getSeverity().name(), it.getMessageId(), it.getLocationString(),
                        it.getMessage().replace('\n', ' ')));
            }
            count++;
        }
        System.out.println("judged\t" + count);
    }
}
