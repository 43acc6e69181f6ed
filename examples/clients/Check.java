// Asks a balde service before doing work. Standard library only:
//
//   java Check.java http://127.0.0.1:8085 per_user alice

import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

public class Check {
    private static final HttpClient CLIENT = HttpClient.newHttpClient();

    /** The service's decision as JSON, or null if it does not answer in time: then the caller chooses. */
    static String check(String service, String limit, String key, Duration timeout)
            throws InterruptedException {
        String body = "{\"limit\": \"%s\", \"key\": \"%s\"}".formatted(limit, key);
        HttpRequest request = HttpRequest.newBuilder(URI.create(service + "/v1/check"))
                .header("Content-Type", "application/json")
                .timeout(timeout)
                .POST(HttpRequest.BodyPublishers.ofString(body))
                .build();
        try {
            HttpResponse<String> answer = CLIENT.send(request, HttpResponse.BodyHandlers.ofString());
            if (answer.statusCode() == 503) {
                return null; // Overloaded, or its Redis is unavailable.
            }
            if (answer.statusCode() != 200) {
                throw new IllegalStateException(answer.statusCode() + ": " + answer.body());
            }
            return answer.body();
        } catch (IOException error) {
            return null;
        }
    }

    /** A number of the decision. Programs with a JSON library need no pattern. */
    static long number(String decision, String field) {
        Matcher matcher = Pattern.compile("\"" + field + "\":\\s*(-?\\d+)").matcher(decision);
        return matcher.find() ? Long.parseLong(matcher.group(1)) : 0;
    }

    public static void main(String[] arguments) throws InterruptedException {
        for (int i = 0; i < 3; i++) {
            String decision = check(arguments[0], arguments[1], arguments[2], Duration.ofSeconds(10));
            if (decision == null) {
                System.out.println("no answer: allowed"); // Fail open.
            } else if (decision.matches("(?s).*\"allowed\":\\s*true.*")) {
                System.out.println("allowed, " + number(decision, "remaining") + " left");
            } else {
                long micros = number(decision, "retry_after_us");
                System.out.println("refused, retry in " + Math.round(micros / 1e6) + " s");
            }
        }
    }
}
